//! A host written in C uses all of the interface, and runs clean under valgrind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{env, fs};

const VALGRIND: &[&str] = &[
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=all",
    "--show-leak-kinds=all",
    "--track-fds=yes",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command that has to succeed; returns what it says.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; `make install` installs it"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &said
}

/// Builds the static library as a user would; returns where it is.
fn library() -> PathBuf {
    // A test has its own place: <profile>/deps/<name>.
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--lib", "--manifest-path"]);
    build.arg(root().join("Cargo.toml"));
    build.arg("--target-dir").arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    run(&mut build);
    profile.join("libdwell.a")
}

/// Compiles a host, strictly.
fn compile(source: &str, program: &Path) {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile.args([
        "-std=gnu11",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    ]);
    compile.arg("-I").arg(root().join("include"));
    compile.arg(root().join(source)).arg(library());
    compile.args(["-lpthread", "-ldl", "-lm", "-o"]);
    run(compile.arg(program));
}

#[test]
fn a_host_in_c_uses_all_of_it_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("host");
    compile("tests/host.c", &program);
    assert!(run(&mut Command::new(&program)).contains("all is as it should be"));
    let said = run(Command::new("valgrind").args(VALGRIND).arg(&program));
    assert!(said.contains("all is as it should be"), "{said}");
    let (open, inherited) = ("Open file descriptor", "<inherited from parent>");
    let not_ours = said.matches(inherited).count();
    assert_eq!(said.matches(open).count(), not_ours, "{said}");
}

#[test]
fn the_example_answers() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hello");
    compile("examples/hello.c", &program);
    let mut host = Command::new(&program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = host.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let port: u16 = line.trim().strip_prefix("port ").unwrap().parse().unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: h\r\nuser-agent: test/1\r\n\r\n\
                    GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    client.write_all(requests.as_bytes()).unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    assert!(answers.contains("\r\n\r\ntest/1HTTP/1.1 400 "), "{answers}");
    clients_of_http2_are_answered(&format!("http://127.0.0.1:{port}/"), None);
    host.kill().unwrap();
    host.wait().unwrap();
}

/// Clients that others have written speak HTTP/2, without TLS by prior knowledge, to a host that
/// answers with their own name, or with `body`.
fn clients_of_http2_are_answered(url: &str, body: Option<&str>) {
    let flag = if url.starts_with("https") {
        "--http2"
    } else {
        "--http2-prior-knowledge"
    };
    let said = run(Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", flag])
        .args(["-w", "|%{http_version}", url]));
    let is_it = said.starts_with(body.unwrap_or("curl/"));
    assert!(is_it && said.ends_with("|2"), "{said}");
    let said = run(Command::new("nghttp").args(["-v", "-m", "3", url]));
    assert_eq!(said.matches(":status: 200").count(), 3, "{said}");
    let load = ["-n", "500", "-c", "5", "-m", "20", url];
    let said = run(Command::new("h2load").args(load));
    assert!(
        said.contains("500 succeeded, 0 failed, 0 errored"),
        "{said}"
    );
    assert!(said.contains("500 2xx"), "{said}");
    libraries_are_answered(url, body);
}

/// The libraries of Go and Python, where they are installed.
fn libraries_are_answered(url: &str, body: Option<&str>) {
    let clients = root().join("../../tests/clients");
    if is_there(Command::new("go").arg("version")) {
        let mut ask = Command::new("go");
        ask.arg("run").arg(clients.join("h2c/main.go"));
        let said = run(ask.args([url, body.unwrap_or("Go-http-client/2.0")]));
        assert_eq!(said, "50 of 50\n");
    }
    let own = root().join("../../.venv/bin/python");
    let pythons = [own.as_path(), Path::new("python3")];
    let has_h2 = |python: &&Path| is_there(Command::new(python).args(["-c", "import h2"]));
    if let Some(python) = pythons.into_iter().find(has_h2) {
        let said = run(Command::new(python)
            .arg(clients.join("python_h2.py"))
            .arg(url));
        assert_eq!(said, format!("50 times {}\n", body.unwrap_or("h2")));
    }
}

fn is_there(command: &mut Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A client that trusts the test's certificate; returns the body of the answer.
fn curl(port: &str, path: &str, arguments: &[&str]) -> Vec<u8> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
    curl.arg("--cacert").arg(tls_data("certificate.pem"));
    curl.args(["--connect-to", &format!("dwell.test:443:127.0.0.1:{port}")]);
    curl.args(arguments)
        .arg(format!("https://dwell.test{path}"));
    let output = curl.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{curl:?}: {said}");
    output.stdout
}

fn tls_data(name: &str) -> PathBuf {
    root().join("../../crates/tls/tests/data").join(name)
}

/// The host answers with the subject of the certificate that a client has shown.
fn certificates_are_shown(port: &str) {
    let identity = ["client.pem", "client_key.pem"].map(tls_data);
    let [certificate, key] = identity.each_ref().map(|file| file.to_str().unwrap());
    for version in ["1.2", "1.3"] {
        let arguments = ["--tls-max", version, "--cert", certificate, "--key", key];
        let who = String::from_utf8(curl(port, "/who", &arguments)).unwrap();
        assert_eq!(who, "CN=alice,O=Example\\, Inc.");
        assert_eq!(curl(port, "/who", &arguments[..2]), b"nobody");
    }
}

/// The host is told why handshakes have failed: so many of clients that speak no TLS.
fn failures_are_told(port: &str, plain: usize) {
    for (certificate, path) in [("client_expired.pem", "/who"), ("client.pem", "/outlived")] {
        let answered = Command::new("curl")
            .args(["--silent", "--insecure", "--max-time", "60", "--cert"])
            .arg(tls_data(certificate))
            .arg("--key")
            .arg(tls_data("client_key.pem"))
            .arg(format!("https://127.0.0.1:{port}{path}"))
            .status()
            .unwrap();
        assert!(!answered.success(), "{certificate}");
    }
    let reasons = String::from_utf8(curl(port, "/reasons", &[])).unwrap();
    let count = reasons.matches("client speaks no TLS\n").count();
    assert_eq!(count, plain, "{reasons}");
    assert!(reasons.contains("refused: "), "{reasons}");
    assert!(reasons.to_lowercase().contains("expired"), "{reasons}");
}

#[test]
fn a_host_in_c_serves_clients_under_tls() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tls");
    compile("tests/tls.c", &program);
    let (mut host, mut stdout, line) = start_under_tls(&program, &[]);
    let ports: Vec<_> = line.split_whitespace().skip(1).collect();
    assert_eq!(ports.len(), 3, "{line}");

    let body = folder.path().join("body");
    let sent: Vec<u8> = (0..3_000_000_u32)
        .map(|place| (place % 251) as u8)
        .collect();
    fs::write(&body, &sent).unwrap();
    let upload = format!("@{}", body.display());
    let lines: Vec<_> = (0..50_000).map(|line| format!("{line:07}\n")).collect();
    let file = lines.concat();
    for port in &ports {
        let suite = curl(port, "/suite", &["--tlsv1.3"]);
        assert!(suite.starts_with(b"130"), "{suite:?}");
        let suite = curl(port, "/suite", &["--tls-max", "1.2"]);
        assert!(
            suite.starts_with(b"c0") || suite.starts_with(b"cc"),
            "{suite:?}"
        );
        certificates_are_shown(port);
        let expected = ["--data-binary", &upload, "-H", "Expect:"];
        assert!(curl(port, "/", &expected) == sent, "it is another body");
        assert!(
            curl(port, "/file", &[]) == file.as_bytes(),
            "it is another file"
        );

        let mut plain = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        plain
            .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        plain.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    failures_are_told(ports[0], ports.len());
    let detached = Command::new("curl")
        .args(["--silent", "--insecure", "--max-time", "60"])
        .arg(format!("https://127.0.0.1:{}/detach", ports[0]))
        .status()
        .unwrap();
    assert!(!detached.success(), "its connection was closed");
    curl(ports[2], "/end", &[]);
    let mut said = String::new();
    stdout.read_to_string(&mut said).unwrap();
    assert!(host.wait().unwrap().success() && said.contains("all is as it should be"));
}

#[test]
fn a_host_in_c_speaks_http2_under_tls() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tls");
    compile("tests/tls.c", &program);
    let (mut host, mut stdout, line) = start_under_tls(&program, &["http2"]);
    for port in line.split_whitespace().skip(1) {
        assert_eq!(curl(port, "/version", &["--http1.1"]), b"HTTP/1.1");
        let url = format!("https://127.0.0.1:{port}/version");
        clients_of_http2_are_answered(&url, Some("HTTP/2"));
    }
    let last = line.split_whitespace().last().unwrap();
    curl(last, "/end", &[]);
    let mut said = String::new();
    stdout.read_to_string(&mut said).unwrap();
    assert!(host.wait().unwrap().success() && said.contains("all is as it should be"));
}

/// Starts a host with its certificates; returns what it prints first, the ports.
fn start_under_tls(program: &Path, more: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let files = [
        "certificate.pem",
        "key.pem",
        "other_key.pem",
        "client_ca.pem",
    ];
    let mut host = Command::new(program)
        .args(files.map(tls_data))
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(host.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (host, stdout, line)
}

#[test]
fn the_hosts_in_c_leave_no_function_out() {
    let header = fs::read_to_string(root().join("include/dwell.h")).unwrap();
    let read = |host| fs::read_to_string(root().join("tests").join(host)).unwrap();
    let host = read("host.c") + &read("tls.c");
    let declarations = header.lines().filter(|line| !line.starts_with("//"));
    let mut functions = 0;
    for line in declarations {
        let Some((before, _)) = line.split_once('(') else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().unwrap();
        if !name.starts_with("dwell_") {
            continue;
        }
        functions += 1;
        assert!(host.contains(&format!("{name}(")), "{name} is not used");
    }
    assert!(functions > 30, "{functions}");
}
