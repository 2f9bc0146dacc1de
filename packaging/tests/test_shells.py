"""Manual pages and completions, judged by the tools that read them."""

from support import Scratch, run


class Shells(Scratch):
    def test_every_manual_page_is_free_of_warnings(self):
        pages = sorted((self.unpack() / "man").iterdir())
        self.assertGreater(len(pages), 15)
        for page in pages:
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page)
            self.assertEqual(done.stderr, "", page.name)

    def test_the_shells_accept_the_scripts(self):
        scripts = self.unpack() / "completions"
        for shell, name in (("bash", "egret.bash"), ("zsh", "_egret"), ("fish", "egret.fish")):
            run(shell, "-n", scripts / name)

    def test_bash_completes_a_command(self):
        script = self.unpack() / "completions" / "egret.bash"
        play = f"""
            source {script}
            COMP_WORDS=(egret heal) COMP_CWORD=1
            _egret egret heal egret
            echo "${{COMPREPLY[@]}}"
        """
        self.assertEqual(run("bash", "-c", play).stdout.split(), ["health"])

    def test_fish_completes_a_command(self):
        script = self.unpack() / "completions" / "egret.fish"
        play = f"source {script}; complete --do-complete 'egret heal'"
        self.assertTrue(run("fish", "--no-config", "-c", play).stdout.startswith("health"))

    def test_zsh_completes_a_command(self):
        scripts = self.unpack() / "completions"
        # Completion needs a terminal, which the module zpty gives it. Without -D, compinit moves a cache over the file that
        # -d names: as root, it would replace even /dev/null.
        play = f"""
            zmodload zsh/zpty
            zpty -b shell zsh -f -i
            zpty -w shell "fpath=({scripts} \\$fpath); autoload -U compinit; compinit -u -D; PS1=; print BEGIN"
            zpty -r shell seen '*BEGIN*BEGIN*'
            zpty -w -n shell $'egret heal\\t'
            zpty -r shell seen '*egret health*' && print completed
        """
        self.assertIn("completed", run("zsh", "-f", "-c", play, timeout=60).stdout)
