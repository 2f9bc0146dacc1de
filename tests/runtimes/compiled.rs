//! Programs that are compiled first: Go and Java.

use std::process::Command;

use egret_tests::egret::Config;
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::Provider;

use super::trial::{EXPECTED, Trial, URL};

const GO: &str = r#"package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	response, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, _ := io.ReadAll(response.Body)
	fmt.Println(string(text))
}
"#;

/// Calls through a Unix socket.
const GO_UNIX: &str = r#"package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Args[1])
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	for range 3 {
		response, err := client.Get(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		text, _ := io.ReadAll(response.Body)
		fmt.Println(string(text))
	}
}
"#;

const JAVA: &str = r#"import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Fetch {
    public static void main(String[] arguments) throws Exception {
        URI uri = URI.create(arguments[1]);
        if (arguments[0].equals("connection")) {
            System.out.println(new String(uri.toURL().openConnection().getInputStream().readAllBytes()));
            return;
        }
        HttpRequest request = HttpRequest.newBuilder(uri).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"#;

/// Builds a program in the directory, and returns its path.
fn built(directory: &Directory, program: &str) -> String {
    directory.write("fetch.go", program);
    let mut build = Command::new("go");
    build.args(["build", "-o", "fetch", "fetch.go"]).current_dir(directory.path());
    run_checked(build.env("GO111MODULE", "off").env("CGO_ENABLED", "0"));
    directory.join("fetch").display().to_string()
}

#[test]
fn go_calls_through_a_unix_socket() {
    let (directory, origin) = (Directory::default(), Provider::plain());
    let program = built(&directory, GO_UNIX);
    let socket = directory.join("egret.sock").display().to_string();
    let _egret = Config::with_origin(origin.url()).listen([&format!("'unix:{socket}'")]).start();
    let printed = run_checked(Command::new(program).args([&socket, "http://localhost/origin/a"]));
    assert_eq!(printed, "hello\n".repeat(3));
}

#[test]
fn go_net_http() {
    let directory = Directory::default();
    let program = built(&directory, GO);
    Trial::of(&[&program, URL]).reaches(EXPECTED).reaches_isolated(EXPECTED).is_explained(&["SSL_CERT_FILE"]);
}

#[test]
fn java_http_client_and_url_connection() {
    let directory = Directory::default();
    directory.write("Fetch.java", JAVA);
    run_checked(Command::new("javac").arg("Fetch.java").current_dir(directory.path()));
    let classes = directory.path().display().to_string();
    for way in ["client", "connection"] {
        Trial::of(&["java", "-cp", &classes, "Fetch", way, URL])
            .reaches(EXPECTED)
            .is_explained(&["javax.net.ssl.trustStore"]);
        // Without the properties of a proxy.
        let line = format!(
            "unset JDK_JAVA_OPTIONS; JAVA_TOOL_OPTIONS=$(echo \"$JAVA_TOOL_OPTIONS\" | tr ' ' '\\n' | grep trustStore | tr '\\n' ' ') \
             exec java -cp {classes} Fetch {way} {URL}"
        );
        Trial::of(&["sh", "-c", &line]).reaches_isolated(EXPECTED);
    }
}
