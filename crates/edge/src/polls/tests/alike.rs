//! Many polls of one key that are told of one change: each gets the fields that it asked for.

use super::harness::{Edge, cursor};
use std::io::Read;

const PAGES: &str =
    "[[route]]\nprefix = \"/poll/\"\ncors_origins = [\"https://a.example\", \"https://b.example\"]";

/// The answers to polls that wait for one key with these fields, in their order.
fn answers(options: &str, fields: &[&str], value: &str) -> Vec<String> {
    let mut edge = Edge::new(options);
    edge.set("/poll/a", "one");
    let since = cursor("one");
    let ask = |fields: &&str| edge.ask(&format!("GET /poll/a?since={since}\n{fields}"));
    let mut clients: Vec<_> = fields.iter().map(ask).collect();
    edge.turn_until_waiting(fields.len());
    edge.set("/poll/a", value);
    edge.turn_until_waiting(0);
    let mut answer = [0; 4096];
    let mut read = |client: &mut super::Client| {
        let length = client.socket.read(&mut answer).unwrap();
        let text = String::from_utf8(answer[..length].to_vec()).unwrap();
        let without_date = text
            .split("\r\n")
            .filter(|line| !line.starts_with("Date: "));
        without_date.collect::<Vec<_>>().join("\n")
    };
    clients.iter_mut().map(&mut read).collect()
}

/// The same polls, each told alone.
fn alone(options: &str, fields: &[&str], value: &str) -> Vec<String> {
    let each = fields
        .iter()
        .flat_map(|one| answers(options, &[*one], value));
    each.collect()
}

#[test]
fn polls_that_ask_differently_are_not_given_the_fields_of_others() {
    let fields = [
        "Prefer: wait=50\r\n",
        "Prefer: wait=50\r\n",
        "Prefer: wait=40\r\n",
        "Prefer: wait=50\r\nOrigin: https://a.example\r\n",
        "Prefer: wait=50\r\nOrigin: https://b.example\r\n",
        "Prefer: wait=50\r\nConnection: close\r\n",
        "Prefer: wait=50\r\n",
    ];
    let told = answers(PAGES, &fields, "two");
    assert_eq!(told, alone(PAGES, &fields, "two"));
    assert!(
        told[1].ends_with("\nContent-Length: 3\n\ntwo"),
        "{}",
        told[1]
    );
    assert_eq!(told[0], told[1]);
    assert!(told[2].contains("\nPreference-Applied: wait=40\n"));
    assert!(told[3].contains("\nAccess-Control-Allow-Origin: https://a.example\n"));
    assert!(told[4].contains("\nAccess-Control-Allow-Origin: https://b.example\n"));
    assert!(told[5].contains("\nConnection: close\n"));
}

#[test]
fn values_without_content_are_told_alike() {
    let options = "[[route]]\nprefix = \"/poll/\"\nempty = \"204\"";
    let fields = ["Prefer: wait=50\r\n", "Prefer: wait=50\r\n"];
    let told = answers(options, &fields, "");
    assert_eq!(told, alone(options, &fields, ""));
    assert!(told[1].starts_with("HTTP/1.1 204 "), "{}", told[1]);
}
