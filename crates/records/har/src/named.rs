//! Decides by a name whether its value is a secret: the name of a header field, a cookie, a parameter, a form
//! field, a JSON member, an XML element or attribute, or a GraphQL argument.
//!
//! The same rule applies to recording and to verification. A name is split into words at every character that
//! is not a letter or digit, and where the case changes. Digits at the end of a word do not count.
//!
//! - Words for a password, `secret` or `credential` anywhere mean a secret, unless the last word names a
//!   property of it: `password_policy`, `secret_name`.
//! - Otherwise the last word decides, together with the one before it: `access_token`, `x-api-key`,
//!   `session_id`, `stripe-signature` are secrets; `next_page_token`, `max_tokens`, `primary_key`,
//!   `token_type` are not.
//! - Words such as `value`, `hash` or `header` at the end are skipped: `api_key_value` is an `api_key`.
//!
//! Words may be joined, as in `accesstoken` and `PHPSESSID`. Names are English, like those of most APIs;
//! words for a password are known in other languages too.
//!
//! Two names depend on their place: `Key` is a secret as the name of a header field, and `code` beside
//! `grant_type`, or beside `state` in a URL (RFC 6749 §4.1).

use egret_json::tokenizer::{Sink, Tokenizer};

use crate::pseudonym::{is_number_pseudonym, is_pseudonym};

/// Meaning of a name for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The name does not suggest a secret.
    Plain,
    /// The value is a secret. If it is an object, this applies to the members that represent it, such as `id`
    /// and `value`.
    Secret,
    /// The value is a secret unless it is an object. Of an object, this applies to `number`.
    SecretScalar,
    /// Everything within the value is secret.
    AllSecret,
}

/// The neighbours of a name, as far as they change its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Beside {
    /// Nothing of interest.
    #[default]
    Nothing,
    /// The parameters of an authorization grant, so that `code` is the grant.
    Grant,
}

/// The name of a grant by its place (RFC 6749 §4.1).
const CODE: &str = "code";

impl Beside {
    /// Returns what stands in a body, in any syntax.
    pub(crate) fn of_body(text: &str) -> Self {
        // Most texts are too short, or have no `code`.
        let is_grant = text.len() > "grant_type=&code=".len()
            && text.contains(CODE)
            && ["grant_type", "grantType"].iter().any(|name| text.contains(name));
        if is_grant { Self::Grant } else { Self::Nothing }
    }

    /// Returns what stands in a URL, a query or a form.
    pub(crate) fn of_parameters(text: &str) -> Self {
        let is_state = |at: usize| at == 0 || matches!(text.as_bytes()[at - 1], b'?' | b'&' | b'#' | b';');
        if text.contains("code=") && text.match_indices("state=").any(|(at, _)| is_state(at)) {
            return Self::Grant;
        }
        Self::of_body(text)
    }

    /// Returns what these names of parameters mean for each other.
    pub(crate) fn of_names<'a>(mut names: impl Iterator<Item = &'a str>) -> Self {
        if names.any(|name| matches!(name, "grant_type" | "grantType" | "state")) {
            Self::Grant
        } else {
            Self::Nothing
        }
    }
}

/// Number of words kept, counted from the end of a name. No rule uses more.
const WORDS_MAX: usize = 4;

/// A word in lower case, without the digits at its end, and the lists that contain it.
#[derive(Clone, Copy, Default)]
struct Word<'a> {
    text: &'a [u8],
    lists: u16,
}

impl Word<'_> {
    /// Returns `true` if the word is in one of these lists.
    fn is_in(self, lists: u16) -> bool {
        self.lists & lists != 0
    }
}

/// The last words of a name.
#[derive(Default)]
struct NameWords<'a> {
    last: [Word<'a>; WORDS_MAX],
    /// Number of words, at most [`WORDS_MAX`].
    len: usize,
    /// `true` if any word of the name always means a secret.
    has_strong: bool,
}

impl<'a> NameWords<'a> {
    /// Splits a name into words. `lower` is the same name in lower case.
    fn of(name: &[u8], lower: &'a [u8]) -> Self {
        let mut words = Self::default();
        let mut start = 0;
        for (at, byte) in name.iter().enumerate() {
            match CLASSES[usize::from(*byte)] {
                Class::Capital if is_break(name, at) => {
                    words.push(&lower[start..at]);
                    start = at;
                }
                Class::Letter | Class::Capital => {}
                Class::Other => {
                    words.push(&lower[start..at]);
                    start = at + 1;
                }
            }
        }
        words.push(&lower[start..]);
        words
    }

    fn push(&mut self, word: &'a [u8]) {
        let digits = word.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let text = &word[..word.len() - digits];
        if text.is_empty() {
            return;
        }
        let word = Word { text, lists: lists_of(text) };
        self.has_strong |= is_strong(word) || is_split_password(self.text(0), text);
        if self.len == WORDS_MAX {
            self.last.rotate_left(1);
            self.len -= 1;
        }
        self.last[self.len] = word;
        self.len += 1;
    }

    /// Returns the last word for 0, the one before it for 1 and so on. Empty if there is none.
    fn get(&self, back: usize) -> Word<'a> {
        self.len.checked_sub(back + 1).map_or(Word::default(), |at| self.last[at])
    }

    fn text(&self, back: usize) -> &'a [u8] {
        self.get(back).text
    }
}

/// The role of a byte in a name. All bytes outside ASCII count as letters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A small letter or a digit.
    Letter,
    Capital,
    /// It stands between words.
    Other,
}

static CLASSES: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut classes = [Class::Letter; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        if byte.is_ascii_uppercase() {
            classes[byte as usize] = Class::Capital;
        } else if !byte.is_ascii_alphanumeric() {
            classes[byte as usize] = Class::Other;
        }
        byte += 1;
    }
    classes
}

/// Returns `true` if the capital at `at` begins a word: the `K` of `apiKey` and of `APIKey`.
fn is_break(name: &[u8], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| name[before]) else { return false };
    match CLASSES[usize::from(before)] {
        Class::Capital => name.get(at + 1).is_some_and(u8::is_ascii_lowercase),
        Class::Letter => true,
        Class::Other => false,
    }
}

/// Returns `true` if a word means a secret regardless of the words before it.
fn is_strong(word: Word<'_>) -> bool {
    match word.text {
        [.., b's', b'e', b'c', b'r', b'e', b't'] | [.., b's', b'e', b'c', b'r', b'e', b't', b's'] => true,
        text => word.is_in(STRONG) || has_password(text) && text != b"passwordless",
    }
}

fn has_password(word: &[u8]) -> bool {
    let begins = |rest: &[u8]| {
        matches!(rest, [b'p', b'a', b's', b's', b'w', b'o', b'r', b'd', ..])
            || matches!(rest, [b'p', b'a', b's', b's', b'w', b'd', ..])
            || matches!(rest, [b'p', b'a', b's', b's', b'p', b'h', b'r', b'a', b's', b'e', ..])
    };
    // The shortest word for one is `passwd`.
    let last = word.len().saturating_sub("passwd".len() - 1);
    word[..last].iter().enumerate().any(|(at, byte)| *byte == b'p' && begins(&word[at..]))
}

/// Returns `true` if two words form one for a password: `passWord`, `pass-phrase`, `mot_de_passe`.
fn is_split_password(before: &[u8], word: &[u8]) -> bool {
    match before {
        b"pass" => matches!(word, b"word" | b"words" | b"wd" | b"phrase"),
        b"de" | b"palavra" => word == b"passe",
        b"mat" => word == b"khau",
        b"kata" => word == b"sandi",
        _ if before.is_ascii() => false,
        _ => {
            let is = |first: &str, second: &str| before == first.as_bytes() && word == second.as_bytes();
            is("mật", "khẩu") || is("كلمة", "المرور") || is("كلمة", "السر")
        }
    }
}

const SKIPPED: u16 = 1;
const ABOUT: u16 = 1 << 1;
const HARMLESS_TOKEN: u16 = 1 << 2;
const SECRET_TOKENS: u16 = 1 << 3;
const SECRET_KEY: u16 = 1 << 4;
const SECRET_CODE: u16 = 1 << 5;
const SECRET_NOUN: u16 = 1 << 6;
const REPRESENTS: u16 = 1 << 7;
const STRONG: u16 = 1 << 8;
const DATABASE: u16 = 1 << 9;
const CARD: u16 = 1 << 10;

/// The words of each list, separated by blanks.
const LISTS: [(u16, &str); 11] = [
    // Words at the end that do not change the meaning of the words before them.
    (
        SKIPPED,
        "value val hash hashed confirm confirmation again repeat old new current plain plaintext raw text string \
        str data base b encoded encrypted hex sha hint header param env live test prod v",
    ),
    // Words at the end that make it the name of a property of a secret.
    (
        ABOUT,
        "type types kind at on in url uri href link path name names arn length len size count policy policies \
        strength score required optional enabled disabled allowed valid validity invalid supported set expires \
        expired expiry expiration exp ttl age date time timestamp created updated changed modified version \
        versions status state format label title description placeholder question error errors message min max \
        limit last scope scopes method methods mode grant flow algorithm alg algo endpoint endpoints usage \
        attempts retries tries provider source manager store region rotation field fields rule rules locked \
        prefix",
    ),
    // Words before `token` that make it harmless: a position in a list, or a piece of text.
    (
        HARMLESS_TOKEN,
        "page nextpage next prev previous continuation continue cursor sync pagination paging start end stop \
        first last max min num total count eos bos pad unk mask sep cls special per input output prompt \
        completion cached reasoning image audio idempotency change delta watch offset position",
    ),
    // Words before `tokens` that make them secrets. Otherwise `tokens` is a count.
    (
        SECRET_TOKENS,
        "access refresh auth bearer api session security oauth device registration personal csrf",
    ),
    // Words before `key` that make it a secret. Most other keys are identifiers. Words that end with `api`
    // count too.
    (
        SECRET_KEY,
        "access private auth authorization authentication encryption decryption signing signature master account \
        shared service subscription license licence app application client consumer server session security \
        storage admin root webhook hook function functions deploy developer write ingest ingestion mashape hmac \
        ssh pgp gpg preshared bearer",
    ),
    // Words before `code` that make it a secret.
    (
        SECRET_CODE,
        "otp totp mfa verification auth authorization recovery backup security pass pin sms access device login",
    ),
    // Words that mean a secret by themselves, at the end of a name.
    (
        SECRET_NOUN,
        "authorization authorisation authentication auth bearer jwt jws jwe dpop assertion csrf xsrf signature \
        signatures session sess sessid cookie pass passcode pw pswd otp totp pin cvv cvc ssn iban dsn mdp parola \
        sandi sifre şifre",
    ),
    // Members that represent the object they are in, like those in the first list.
    (REPRESENTS, "id key code content payload"),
    // Words that mean a secret anywhere in a name, besides those for `password` and `secret`.
    (
        STRONG,
        "pwd credential credentials creds passwort kennwort motdepasse contrasena contraseña contrasenia senha \
        palavrapasse wachtwoord losenord lösenord passord adgangskode salasana haslo hasło heslo jelszo jelszó \
        parool slaptazodis slaptažodis lozinka geslo matkhau katasandi пароль парола лозинка συνθηματικό 密码 密碼 \
        口令 パスワード 비밀번호 암호 รหัสผ่าน סיסמה पासवर्ड",
    ),
    // Words before `url` and `uri` that make it the address of a database, which contains its password.
    (
        DATABASE,
        "database db datasource redis mongo mongodb postgres postgresql pg mysql mariadb mssql sqlserver \
        sqlalchemy clickhouse amqp rabbitmq jdbc",
    ),
    // Words before `card` that make it a payment card.
    (CARD, "credit debit bank payment charge prepaid gift"),
];

/// Number of slots of the table of words, a power of two: more than twice the number of words.
const SLOTS: usize = 1024;

/// The words of all lists, at the slot of their hash or one of those behind it.
struct Lexicon {
    slots: [Word<'static>; SLOTS],
    /// The lengths of the words that begin with a byte: bit `n` is set if there is one of `n` bytes.
    lengths: [u32; 256],
}

static LEXICON: Lexicon = Lexicon::new();

impl Lexicon {
    #[expect(clippy::large_stack_arrays, reason = "only the compiler evaluates it")]
    const fn new() -> Self {
        let mut lexicon = Self { slots: [Word { text: b"", lists: 0 }; SLOTS], lengths: [0; 256] };
        let mut number = 0;
        while number < LISTS.len() {
            let (list, words) = LISTS[number];
            let mut rest = words.as_bytes();
            while !rest.is_empty() {
                let mut len = 0;
                while len < rest.len() && rest[len] != b' ' {
                    len += 1;
                }
                let (word, after) = rest.split_at(len);
                lexicon.add(word, list);
                rest = match after.split_first() {
                    Some((_, after)) => after,
                    None => after,
                };
            }
            number += 1;
        }
        lexicon
    }

    const fn add(&mut self, word: &'static [u8], list: u16) {
        let mut slot = slot_of(word);
        while !self.slots[slot].text.is_empty() && !is_equal(self.slots[slot].text, word) {
            slot = (slot + 1) % SLOTS;
        }
        self.slots[slot] = Word { text: word, lists: self.slots[slot].lists | list };
        self.lengths[word[0] as usize] |= 1 << word.len();
    }
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Returns the slot of a word by its first and last bytes, and its length.
#[expect(clippy::cast_possible_truncation, reason = "a hash may be of the length's lower half")]
const fn slot_of(word: &[u8]) -> usize {
    let (first, last) = match (word.first_chunk(), word.last_chunk()) {
        (Some(first), Some(last)) => (u32::from_le_bytes(*first), u32::from_le_bytes(*last)),
        _ => match word {
            [first, .., last] => (*first as u32, *last as u32),
            [byte] => (*byte as u32, 0),
            [] => (0, 0),
        },
    };
    let hash = first.wrapping_mul(0x9e37_79b1) ^ last.wrapping_mul(0x85eb_ca77) ^ word.len() as u32;
    (hash.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS.ilog2())) as usize
}

/// Returns the lists that contain a word.
fn lists_of(word: &[u8]) -> u16 {
    let lengths = word.first().map_or(0, |first| LEXICON.lengths[usize::from(*first)]);
    let is_length =
        u32::try_from(word.len()).is_ok_and(|len| lengths.checked_shr(len).unwrap_or_default() & 1 == 1);
    if !is_length {
        return 0;
    }
    let mut slot = slot_of(word);
    loop {
        let Word { text, lists } = LEXICON.slots[slot % SLOTS];
        if text.is_empty() || text == word {
            return lists;
        }
        slot += 1;
    }
}

/// Returns the meaning of the name of a header field. `Key` alone is one of a secret there; elsewhere it is
/// the name of an entry.
pub(crate) fn meaning_of_field(name: &str) -> Meaning {
    if name.eq_ignore_ascii_case("key") { Meaning::Secret } else { meaning(name) }
}

/// Returns the meaning of a name with that `beside` it, which is asked for only if the name depends on it.
pub(crate) fn meaning_beside(beside: impl FnOnce() -> Beside, name: &str) -> Meaning {
    let is_grant = name.eq_ignore_ascii_case(CODE) && beside() == Beside::Grant;
    if is_grant { Meaning::Secret } else { meaning(name) }
}

/// Maximum length of a name that is written in lower case without memory of its own.
const SHORT_BYTES_MAX: usize = 64;

/// Judges a name by its words. Letters outside ASCII change their length with their case, and names with them
/// are split at other characters alone.
fn by_words<T>(name: &str, judge: impl FnOnce(NameWords<'_>) -> T) -> T {
    let written = name.as_bytes();
    if !name.is_ascii() {
        let lower = name.to_lowercase();
        return judge(NameWords::of(lower.as_bytes(), lower.as_bytes()));
    }
    let mut short = [0; SHORT_BYTES_MAX];
    match short.get_mut(..written.len()) {
        Some(lower) => {
            lower.copy_from_slice(written);
            lower.make_ascii_lowercase();
            judge(NameWords::of(written, lower))
        }
        None => judge(NameWords::of(written, &written.to_ascii_lowercase())),
    }
}

/// Returns the meaning of a name.
pub(crate) fn meaning(name: &str) -> Meaning {
    if is_pseudonym(name.strip_prefix('_').unwrap_or(name).as_bytes()) {
        return Meaning::Plain;
    }
    let has_mark = matches!(name.as_bytes(), [b'x' | b'X', b'-' | b'_', ..]);
    by_words(name, |words| meaning_of_words(words, has_mark))
}

/// Returns the meaning of a name by its words. `has_mark` is `true` if it begins like `X-Key`.
fn meaning_of_words(mut words: NameWords<'_>, has_mark: bool) -> Meaning {
    match (words.text(1), words.text(0)) {
        (b"connection", b"string") | (_, b"connectionstring") => return Meaning::Secret,
        (b"connection", b"strings") | (_, b"connectionstrings") => return Meaning::AllSecret,
        _ => {}
    }
    while words.len > 1 && words.get(0).is_in(SKIPPED) {
        words.len -= 1;
    }
    if words.has_strong {
        return if words.get(0).is_in(ABOUT) { Meaning::Plain } else { Meaning::AllSecret };
    }
    if has_mark && words.len == 2 && matches!(words.text(0), b"key" | b"access" | b"login" | b"user") {
        return Meaning::Secret;
    }
    meaning_of_end(&words)
}

/// Returns the meaning of a name by its last words.
fn meaning_of_end(words: &NameWords<'_>) -> Meaning {
    let (head, kind) = (words.text(0), words.text(1));
    // Short words that mean a secret only without a word before them.
    if words.len == 1 && matches!(head, b"sid" | b"sig") || (kind, head) == (b"connect", b"sid") {
        return Meaning::Secret;
    }
    if words.get(0).is_in(SECRET_NOUN) {
        return Meaning::Secret;
    }
    match head {
        b"cookies" => return Meaning::AllSecret,
        // `DPoP` (RFC 9449 §4), whose capitals look like words.
        b"p" if (words.text(2), kind) == (b"d", b"po") => return Meaning::Secret,
        // `hmac` alone names an algorithm.
        b"hmac" if !kind.is_empty() => return Meaning::Secret,
        b"id" | b"ids" if matches!(kind, b"session" | b"sess") => return Meaning::Secret,
        b"code" | b"codes" if words.get(1).is_in(SECRET_CODE) => return Meaning::Secret,
        b"verifier" if kind == b"code" => return Meaning::Secret,
        b"answer" if kind == b"security" => return Meaning::Secret,
        b"user" if kind == b"api" => return Meaning::Secret,
        b"number" if matches!(kind, b"card" | b"creditcard" | b"cc" | b"iban" | b"security") => {
            return Meaning::Secret;
        }
        b"cardnumber" | b"creditcardnumber" | b"ccnumber" | b"databaseurl" => return Meaning::Secret,
        b"card" if words.len == 1 || words.get(1).is_in(CARD) => return Meaning::SecretScalar,
        b"creditcard" | b"debitcard" => return Meaning::SecretScalar,
        b"url" | b"uri" if words.get(1).is_in(DATABASE) => return Meaning::Secret,
        b"response" if kind == b"saml" => return Meaning::Secret,
        _ => {}
    }
    meaning_of_glued(words)
}

/// Returns the meaning of a name that ends with `token`, `key` or an id of a session. The kind may be joined
/// to the word or be the word before it.
fn meaning_of_glued(words: &NameWords<'_>) -> Meaning {
    let head = words.text(0);
    let is_in = |glued: &[u8], list: u16| {
        let lists = if glued.is_empty() { words.get(1).lists } else { lists_of(glued) };
        lists & list != 0
    };
    let is_key = |glued: &[u8]| {
        let kind = if glued.is_empty() { words.text(1) } else { glued };
        kind.ends_with(b"api") || is_in(glued, SECRET_KEY)
    };
    match head {
        [glued @ .., b't', b'o', b'k', b'e', b'n', b's'] if is_in(glued, SECRET_TOKENS) => Meaning::AllSecret,
        [glued @ .., b't', b'o', b'k', b'e', b'n'] if !is_in(glued, HARMLESS_TOKEN) => Meaning::Secret,
        [glued @ .., b'k', b'e', b'y', b's'] if is_key(glued) => Meaning::AllSecret,
        [glued @ .., b'k', b'e', b'y'] if is_key(glued) => Meaning::Secret,
        [.., b's', b'e', b's', b's', b'i', b'd']
        | [.., b's', b'e', b's', b's', b'i', b'o', b'n', b'i', b'd'] => Meaning::Secret,
        _ => Meaning::Plain,
    }
}

/// Returns the meaning of a member's name within an object that means `around`.
pub(crate) fn meaning_within(around: Meaning, name: &str) -> Meaning {
    match around {
        Meaning::AllSecret => Meaning::AllSecret,
        Meaning::SecretScalar if name.eq_ignore_ascii_case("number") => Meaning::Secret,
        Meaning::Secret if stands_for_its_parent(name) => Meaning::Secret,
        Meaning::Plain | Meaning::Secret | Meaning::SecretScalar => meaning(name),
    }
}

/// Returns `true` if a member or an element of this name represents the one it is in.
pub(crate) fn stands_for_its_parent(name: &str) -> bool {
    by_words(name, |words| (0..words.len).all(|back| words.get(back).is_in(SKIPPED | REPRESENTS)))
}

/// Returns `true` if a value reveals nothing, whatever its name: it is empty, a word for true, false or null,
/// a pseudonym, a placeholder that other programs write for a secret, or JSON that consists of such values.
pub(crate) fn reveals_nothing(value: &str) -> bool {
    let value = value.trim();
    let is_word = |word: &str| value.eq_ignore_ascii_case(word);
    let inner = value.trim_matches(['[', ']', '<', '>']);
    is_pseudonym(value.as_bytes())
        || is_number_pseudonym(value.as_bytes())
        || value.bytes().all(|byte| byte == b'*')
        || value.starts_with(['{', '[', '"']) && is_hidden_json(value)
        || ["true", "false", "null", "undefined", "redacted"].iter().any(|word| is_word(word))
        || inner.len() + 2 == value.len()
            && ["redacted", "filtered", "masked"].iter().any(|word| {
                let start = inner.len().saturating_sub(word.len());
                inner.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(word))
            })
}

/// Returns `true` if a text is JSON whose leaves are all hidden.
fn is_hidden_json(text: &str) -> bool {
    let (mut tokenizer, mut leaves) = (Tokenizer::new(), Leaves { held: Vec::new(), is_hidden: true });
    let is_json =
        tokenizer.push(text.as_bytes(), &mut leaves).and_then(|()| tokenizer.finish(&mut leaves)).is_ok();
    is_json && leaves.is_hidden
}

/// Checks that all leaves are hidden.
struct Leaves {
    /// The beginning of each piece of a string, which is longer than any pseudonym.
    held: Vec<u8>,
    is_hidden: bool,
}

impl Sink for Leaves {
    fn open(&mut self, _: bool) {}
    fn close(&mut self, _: bool) {}
    fn comma(&mut self) {}
    fn name(&mut self, _: &str) {}

    fn begin_text(&mut self) {
        self.held.clear();
    }

    fn text(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(&piece[..piece.len().min(64)]);
    }

    fn end_text(&mut self) {
        self.is_hidden &= self.held.is_empty() || is_pseudonym(&self.held);
    }

    fn number(&mut self, number: &[u8]) {
        self.is_hidden &= is_number_pseudonym(number);
    }

    fn word(&mut self, _: &'static str) {}
}

/// Authentication schemes that may be shown (RFC 9110 §11.1).
const SCHEMES: [&str; 6] = ["basic", "bearer", "digest", "dpop", "negotiate", "token"];

/// Splits a value into a scheme that may be shown and the credentials after it. Returns `None` if it begins
/// with no such scheme.
pub(crate) fn scheme(value: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = value.split_once(' ')?;
    is_scheme(scheme).then(|| (scheme, rest.trim()))
}

/// Returns `true` if a word is such a scheme.
pub(crate) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Authorization authorization Proxy-Authorization X-Forwarded-Authorization auth X-Auth basic_auth Cookie \
        Set-Cookie cookie cookies auth_cookie X-Api-Key x_api_key xApiKey apiKey APIKey api_key api-key apikey \
        API_KEY api_keys apiKeyValue x-goog-api-key X-RapidAPI-Key xi-api-key Ocp-Apim-Subscription-Key \
        DD-APPLICATION-KEY x-functions-key X-Mashape-Key access_key aws_secret_access_key AWSSecretKey \
        private_key privateKey encryption_key signing-key storageAccountKey license_key x-amz-security-token \
        X-Amz-Signature X-Amz-Credential sig signature Stripe-Signature X-Hub-Signature-256 \
        X-Shopify-Hmac-Sha256 password Password passWord PASSWORD password1 password_confirmation newPassword \
        user[password] user.password password[] data[attributes][password] passwordHash passwd userpasswd pwd \
        userPwd db_pass pass passphrase pass_phrase passcode password_reset_token secret clientSecret \
        client_secret CLIENT-SECRET clientsecret webhook_secret secret_key secret_id secretKeyBase secrets \
        SECRET2 credential credentials userCredentials token Token access_token accessToken accesstoken \
        access-token access_token_2 refresh_token refreshToken id_token idToken id_token_hint X-Team-Token \
        x-auth-token X-CSRFToken csrfmiddlewaretoken authenticity_token XSRF-TOKEN X-Vault-Token PRIVATE-TOKEN \
        bot_token device_token access_tokens refreshTokens service-token session Session session_id sessionId \
        sessionid SessionID JSESSIONID PHPSESSID ASP.NET_SessionId connect.sid sid session_key session-token \
        mcp-session-id X-Session sessionData jwt X-JWT Cf-Access-Jwt-Assertion client_assertion SAMLResponse otp \
        otp_code mfaCode verification_code recovery_codes authorization_code device_code code_verifier pin cvv \
        cvv2 cvc ssn card_number cardNumber security_answer connectionString connection_string bearer passwort";

    /// Names by what they are of. Each is a row of the table that a recording goes by.
    const TABLE: [(&str, &str); 12] = [
        (
            "header fields",
            "Authentication Authorisation Proxy-Authorisation X-Key DPoP X-Access X-Login X-User X-Api-User x_key",
        ),
        ("accounts at a bank", "iban IBAN customerIban iban_number"),
        (
            "payment cards",
            "card credit_card creditCard debit_card payment-card cardNumber card_number creditCardNumber cc_number",
        ),
        (
            "databases",
            "database_url DATABASE_URL databaseUrl db_url REDIS_URL mongodb_uri spring.datasource.url dsn SENTRY_DSN jdbcUrl",
        ),
        ("databases by their parts", "connection_string ConnectionStrings connectionStrings"),
        (
            "passwords in French and Spanish",
            "mot_de_passe motDePasse motdepasse mdp contraseña CONTRASEÑA contrasena nueva_contraseña",
        ),
        ("passwords in Portuguese and Italian", "senha palavra_passe palavra-passe parola"),
        (
            "passwords in Germanic languages",
            "passwort Kennwort wachtwoord lösenord losenord passord adgangskode",
        ),
        ("passwords in Slavic languages", "hasło haslo heslo пароль ПАРОЛЬ парола lozinka geslo"),
        (
            "passwords in other languages of Europe",
            "salasana jelszó parool slaptažodis συνθηματικό şifre sifre",
        ),
        (
            "passwords in languages of Asia",
            "密码 密碼 口令 パスワード 비밀번호 암호 mật_khẩu mat_khau kata_sandi รหัสผ่าน पासवर्ड",
        ),
        ("passwords in Semitic languages", "סיסמה كلمة_المرور كلمة_السر"),
    ];

    #[test]
    fn each_row_of_the_table_is_of_secrets() {
        for (row, names) in TABLE {
            for name in names.split(' ') {
                assert_ne!(meaning(name), Meaning::Plain, "{name}: {row}");
            }
        }
    }

    #[test]
    fn each_list_has_its_words_in_the_table() {
        for (list, words) in LISTS {
            for word in words.split(' ') {
                assert_ne!(lists_of(word.as_bytes()) & list, 0, "{word}");
            }
        }
        assert!(LEXICON.slots.iter().filter(|word| !word.text.is_empty()).count() < SLOTS / 2);
    }

    #[test]
    fn some_names_are_of_secrets_only_in_their_place() {
        assert_eq!((meaning_of_field("Key"), meaning("Key")), (Meaning::Secret, Meaning::Plain));
        for (text, is_grant) in [
            ("grant_type=authorization_code&code=a", true),
            ("{\"grantType\": \"x\", \"code\": \"a\"}", true),
            ("/callback?code=a&state=b", true),
            ("/callback?state=b&code=a", true),
            ("/a?code=a&estate=b", false),
            ("/a?error_code=4&code=a", false),
            ("/a?state=b", false),
        ] {
            let expected = if is_grant { Meaning::Secret } else { Meaning::Plain };
            assert_eq!(meaning_beside(|| Beside::of_parameters(text), "code"), expected, "{text}");
        }
        assert_eq!(meaning_beside(|| Beside::Grant, "country_code"), Meaning::Plain);
    }

    #[test]
    fn these_names_are_of_secrets() {
        for name in SECRET.split(' ') {
            assert_ne!(meaning(name), Meaning::Plain, "{name}");
        }
    }

    const HARMLESS: &str = "- 42 Host Accept Content-Type content-md5 Content-Length Digest hmac-sha256 ETag User-Agent Date \
        X-Request-Id traceparent Idempotency-Key idempotency_key Sec-WebSocket-Key Surrogate-Key \
        WWW-Authenticate Proxy-Authenticate Signature-Input X-Amz-Date X-Amz-Algorithm X-Amz-SignedHeaders \
        x-amz-content-sha256 X-Amz-Expires x-ratelimit-limit-tokens x-ratelimit-remaining-tokens \
        anthropic-ratelimit-tokens-remaining Access-Control-Allow-Headers max_tokens maxTokens maxtokens \
        max_completion_tokens total_tokens prompt_tokens completion_tokens tokens token_count tokenizer \
        token_type tokenType subject_token_type token_endpoint token_endpoint_auth_method token_url token_uri \
        next_page_token nextPageToken page_token pagetoken nextpagetoken nextToken NextToken continuation-token \
        nextSyncToken eos_token pad_token_id primary_key primaryKey foreign_key partition_key sort_key \
        public_key publicKey publishable_key cache_key key keys keyword keywords monkey key_id kid access_key_id \
        AWSAccessKeyId grant_type response_type scope state code error_code country_code zip_code expires_in \
        refresh_token_expires_in id user_id client_id account_sid MessageSid sessions session_count session_name \
        session_duration author authority authentication_method authorization_endpoint authorized \
        password_policy password_required passwordless passwordUpdatedAt forgot_password_url password_length \
        password_expires_in secret_name secretVersion secretary secretsmanager_region credential_type compass \
        bypass passenger passport pinned spin shipping design assign signed signature_version cookie_consent \
        cookiePolicy model usage content name value email phone_number number response \
        keyboard key_count keynote hockey turkey donkey x_axis xKey user_agent userAgent user username user_name \
        login login_url access access_level postcode postal_code status_code statusCode promo_code qr_code barcode \
        card_type card_id cards discard postcard scorecard dashboard business_card database database_name db \
        callback_url webhook_url redirect_uri base_url url uri redis_host parolac mot de passe_partout sandiego \
        authentication_method authenticated author_id coauthor keyed spin_count pinterest cvs liban caliban \
        credit debit credit_limit number_of_cards account_number order_number serial_number \
        egr_clekalplbgh5qoqygn7ukpwd";

    #[test]
    fn these_names_are_of_no_secrets() {
        for name in HARMLESS.split(' ').chain([""]) {
            assert_eq!(meaning(name), Meaning::Plain, "{name}");
        }
    }

    #[test]
    fn the_meaning_of_a_member_depends_on_its_parent() {
        for (around, name, expected) in [
            ("session", "id", Meaning::Secret),
            ("session", "value", Meaning::Secret),
            ("session", "theme", Meaning::Plain),
            ("session", "refresh_token", Meaning::Secret),
            ("token", "type", Meaning::Plain),
            ("credentials", "user", Meaning::AllSecret),
            ("api_keys", "github", Meaning::AllSecret),
            ("user", "id", Meaning::Plain),
            ("user", "password", Meaning::AllSecret),
            ("card", "number", Meaning::Secret),
            ("card", "id", Meaning::Plain),
            ("card", "brand", Meaning::Plain),
            ("card", "cvc", Meaning::Secret),
        ] {
            assert_eq!(meaning_within(meaning(around), name), expected, "{around}.{name}");
        }
    }

    #[test]
    fn some_values_tell_nothing() {
        let hidden = crate::Key::new(&[1; 32]).text(b"x").to_string();
        let json = format!("{{\"a\":[\"{hidden}\",true,{}]}}", crate::Key::new(&[1; 32]).number(b"1"));
        for value in [
            "{}",
            "[\"\"]",
            "\"\"",
            &json,
            "",
            " ",
            "true",
            "FALSE",
            "null",
            "***",
            "[redacted]",
            "[password redacted]",
            "<FILTERED>",
            "REDACTED",
            &hidden,
        ] {
            assert!(reveals_nothing(value), "{value}");
        }
        for value in [
            "{\"a\":\"b\"}",
            "[1]",
            "{",
            "\"",
            "\"hunter2\"",
            "hunter2",
            "0",
            "dark",
            "redacted1",
            "egr_short",
            "filtered",
            "[x]",
            "é",
            "[é]",
        ] {
            assert!(!reveals_nothing(value), "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_name_is_judged_alike_however_its_words_are_joined(words in proptest::collection::vec("[a-z]{2,9}", 1..5)) {
            let capital = |word: &String| word[..1].to_uppercase() + &word[1..];
            let joined = [words.join("_"), words.join("-"), words.join("."), words.join("_").to_uppercase(),
                words.iter().map(capital).collect::<String>()];
            for name in &joined {
                proptest::prop_assert_eq!(meaning(name), meaning(&joined[0]), "{}", name);
            }
        }

        #[test]
        fn any_text_is_a_name(name: String) {
            meaning(&name);
            meaning_within(Meaning::Secret, &name);
            reveals_nothing(&name);
        }
    }
}
