//! A host written in C uses all of the interface, and runs clean under valgrind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    host.kill().unwrap();
    host.wait().unwrap();
}

#[test]
fn the_host_in_c_leaves_no_function_out() {
    let header = fs::read_to_string(root().join("include/dwell.h")).unwrap();
    let host = fs::read_to_string(root().join("tests/host.c")).unwrap();
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
