use proptest::prelude::*;

use super::*;
use crate::session::OUTPUT_BYTES_MAX;

/// Sends one line after the other and checks each reply.
fn check(client: &mut Client, exchanges: &[(&str, &str)]) {
    for (input, expected) in exchanges {
        assert_eq!(client.text(input), *expected, "{input:?}");
    }
}

#[test]
fn noreply_is_silence_and_takes_effect() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set a 1 0 1 noreply\r\n5\r\n", ""),
            ("add a 1 0 1 noreply\r\n6\r\n", ""),
            ("append a 0 0 1 noreply\r\n0\r\n", ""),
            ("incr a 2 noreply\r\n", ""),
            ("decr a 1 noreply\r\n", ""),
            ("touch a 0 noreply\r\n", ""),
            ("get a\r\n", "VALUE a 1 2\r\n51\r\nEND\r\n"),
            ("cas a 0 0 1 999 noreply\r\nx\r\n", ""),
            ("verbosity 1 noreply\r\n", ""),
            ("cache_memlimit 64 noreply\r\n", ""),
            ("cache_memlimit 1 noreply\r\n", ""),
            ("delete a noreply\r\n", ""),
            ("delete a noreply\r\n", ""),
            ("incr a 1 noreply\r\n", ""),
            ("flush_all noreply\r\n", ""),
            ("get a\r\n", "END\r\n"),
        ],
    );
}

#[test]
fn time_passes_for_items() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set soon 0 10 1\r\nx\r\n", "STORED\r\n"),
            ("set gone 0 -1 1\r\nx\r\n", "STORED\r\n"),
            ("set past 0 1699999999 1\r\nx\r\n", "STORED\r\n"),
            ("set date 0 1700000010 1\r\nx\r\n", "STORED\r\n"),
            ("set kept 0 10 1\r\nx\r\n", "STORED\r\n"),
            ("get gone past\r\n", "END\r\n"),
            ("mg soon t\r\n", "HD t10\r\n"),
        ],
    );
    client.now += 9;
    check(
        &mut client,
        &[
            ("gat 0 kept\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n"),
            ("mg soon t\r\n", "HD t1\r\n"),
            ("mg kept t\r\n", "HD t-1\r\n"),
        ],
    );
    client.now += 1;
    let kept = "VALUE kept 0 1\r\nx\r\nEND\r\n";
    check(&mut client, &[("get soon date kept\r\n", kept)]);
    check(
        &mut client,
        &[("flush_all 5\r\n", "OK\r\n"), ("get kept\r\n", kept)],
    );
    client.now += 5;
    check(&mut client, &[("get kept\r\n", "END\r\n")]);
}

#[test]
fn a_too_large_set_deletes_the_old_value_and_others_do_not() {
    let mut client = Client::new();
    let data = "x".repeat(1 << 20);
    let length = data.len();
    check(&mut client, &[("set q 0 0 1\r\n1\r\n", "STORED\r\n")]);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    assert_eq!(
        client.text(&format!("add q 0 0 {length}\r\n{data}\r\n")),
        too_large
    );
    check(&mut client, &[("get q\r\n", "VALUE q 0 1\r\n1\r\nEND\r\n")]);
    assert_eq!(
        client.text(&format!("set q 0 0 {length}\r\n")),
        "",
        "not before all has come"
    );
    assert_eq!(client.text(&format!("{data}\r\n")), too_large);
    check(&mut client, &[("get q\r\n", "END\r\n")]);
    let quiet = format!("set q 0 0 {length} noreply\r\n{data}\r\nmn\r\n");
    assert_eq!(client.text(&quiet), "MN\r\n");
}

#[test]
fn an_append_beyond_the_limit_is_refused_and_changes_nothing() {
    let mut client = Client::new();
    let half = "x".repeat(600_000);
    let stored = client.text(&format!("set a 0 0 600000\r\n{half}\r\n"));
    assert_eq!(stored, "STORED\r\n");
    let refused = client.text(&format!("append a 0 0 600000\r\n{half}\r\n"));
    assert_eq!(refused, "SERVER_ERROR object too large for cache\r\n");
    check(&mut client, &[("mg a s\r\n", "HD s600000\r\n")]);
}

#[test]
fn quiet_meta_commands_speak_only_of_the_unexpected() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("mg a v q\r\nmn\r\n", "MN\r\n"),
            ("ms a 1 q\r\n1\r\nmn\r\n", "MN\r\n"),
            ("ms a 1 ME q O7\r\n1\r\nmn\r\n", "NS O7\r\nMN\r\n"),
            ("mg a v q k\r\n", "VA 1 ka\r\n1\r\n"),
            ("ma a q\r\nmn\r\n", "MN\r\n"),
            ("md a C999999 q\r\n", "EX\r\n"),
            ("md a q\r\nmn\r\n", "MN\r\n"),
            ("md a q\r\n", "NF\r\n"),
        ],
    );
}

#[test]
fn a_shorter_number_keeps_its_length() {
    check(
        &mut Client::new(),
        &[
            ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
            ("decr n 1\r\n", "9\r\n"),
            ("get n\r\n", "VALUE n 0 2\r\n9 \r\nEND\r\n"),
            ("ma n MI v\r\n", "VA 2\r\n10\r\n"),
        ],
    );
}

#[test]
fn recaching_is_won_by_one() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("mg a N30 v t\r\n", "VA 0 t30 W\r\n\r\n"),
            ("mg a N30 v\r\n", "VA 0 Z\r\n\r\n"),
            ("ms a 2 T100\r\nhi\r\n", "HD\r\n"),
            ("mg a R120 v\r\n", "VA 2 W\r\nhi\r\n"),
            ("mg a R120 v\r\n", "VA 2 Z\r\nhi\r\n"),
            ("md a I T30\r\n", "HD\r\n"),
            ("mg a v t\r\n", "VA 2 t30 X W\r\nhi\r\n"),
            ("mg a v\r\n", "VA 2 Z X\r\nhi\r\n"),
            ("ms a 2\r\nho\r\n", "HD\r\n"),
            ("mg a v t T60\r\n", "VA 2 t-1\r\nho\r\n"),
            ("mg a T90 t\r\n", "HD t90\r\n"),
        ],
    );
}

#[test]
fn stats_show_what_happened() {
    let mut client = Client::new();
    client.text("set a 0 0 1\r\n1\r\nget a b\r\n");
    let stats = client.text("stats\r\n");
    for line in [
        "STAT cmd_set 1",
        "STAT get_hits 1",
        "STAT get_misses 1",
        "STAT curr_items 1",
    ] {
        assert!(stats.contains(&format!("{line}\r\n")), "{line} in {stats}");
    }
    assert!(stats.ends_with("END\r\n"));
    assert!(
        client
            .text("stats settings\r\n")
            .contains("STAT item_size_max 1048576\r\n")
    );
    assert!(
        client
            .text("stats items \r\n")
            .contains("STAT items:1:number 1\r\n")
    );
    assert!(
        client
            .text("stats slabs\r\n")
            .contains("STAT active_slabs 1\r\n")
    );
    check(
        &mut client,
        &[
            ("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n"),
            ("stats reset\r\n", "RESET\r\n"),
            ("stats detail on\r\n", "OK\r\n"),
            ("stats detail dump\r\n", "END\r\n"),
        ],
    );
    assert!(client.text("stats\r\n").contains("STAT cmd_set 0\r\n"));
}

#[test]
fn every_statistic_has_a_name_of_its_own() {
    let stats = Client::new().text("stats\r\n");
    let mut names: Vec<&str> = stats
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn the_memory_limit_can_be_lowered_by_a_client_but_not_raised() {
    let failed = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    let too_small = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
    check(
        &mut Client::new(),
        &[
            ("cache_memlimit 16\r\n", "OK\r\n"),
            ("cache_memlimit 7\r\n", too_small),
            ("cache_memlimit 65\r\n", failed),
            ("cache_memlimit 1000000000\r\n", failed),
            (
                "cache_memlimit 4294967296\r\n",
                "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
            ),
        ],
    );
}

#[test]
fn goodbye_ends_the_session() {
    let mut client = Client::new();
    assert_eq!(client.text("mn\r\nquit\r\nmn\r\n"), "MN\r\n");
    assert!(client.closed);
    let mut client = Client::new();
    assert_eq!(client.text("mn\r\nGET / HTTP/1.1\r\n"), "MN\r\n");
    assert!(client.closed);
}

#[test]
fn a_long_retrieval_is_collected_piece_by_piece() {
    let mut client = Client::new();
    let data = "x".repeat(40_000);
    client.text(&format!("set big 0 0 40000 noreply\r\n{data}\r\n"));
    let keys = 500;
    let replies = client.send(format!("get{} \r\nmn\r\n", " big  miss".repeat(keys)).as_bytes());
    let value = format!("VALUE big 0 40000\r\n{data}\r\n");
    assert_eq!(replies.len(), value.len() * keys + "END\r\nMN\r\n".len());
    assert!(replies.ends_with(b"END\r\nMN\r\n"));
    assert!(client.collected_max < OUTPUT_BYTES_MAX + value.len() + 64);
}

#[test]
fn times_of_day_are_those_of_the_wall_clock_and_lifetimes_are_not() {
    for offset in [7200, -7200] {
        let mut client = Client::new();
        client.text("set before 0 10 1\r\nv\r\n");
        client.wall_offset = offset;
        let unix = NOW.saturating_add_signed(offset);
        let soon = unix + 60;
        for line in [
            "set relative 0 60 1\r\nv\r\n".to_owned(),
            format!("set absolute 0 {soon} 1\r\nv\r\n"),
            format!("ms meta 1 T{soon}\r\nv\r\n"),
            format!("set past 0 {} 1\r\nv\r\n", unix - 1),
        ] {
            client.text(&line);
        }
        assert_eq!(client.text("mg before t\r\n"), "HD t10\r\n");
        assert_eq!(client.text("mg past t\r\n"), "EN\r\n");
        for key in ["relative", "absolute", "meta"] {
            assert_eq!(
                client.text(&format!("mg {key} t\r\n")),
                "HD t60\r\n",
                "{key}"
            );
        }
        // The clock is set right again, and nobody's time changes.
        client.wall_offset = 0;
        client.now += 59;
        assert_eq!(client.text("mg before t\r\n"), "EN\r\n");
        assert_eq!(client.text("mg absolute t\r\n"), "HD t1\r\n");
        client.text(&format!("flush_all {}\r\n", client.now + 5));
        client.now += 1;
        assert_eq!(client.text("mg absolute t\r\n"), "EN\r\n");
        client.text("set late 0 0 1\r\nv\r\n");
        client.now += 3;
        assert_eq!(client.text("mg late t\r\n"), "HD t-1\r\n");
        client.now += 1;
        assert_eq!(client.text("mg late t\r\n"), "EN\r\n");
    }
}

#[test]
fn nothing_is_left_of_a_retrieval_behind_its_last_key() {
    let service = service_with(StoreServerLimits::default());
    let value = vec![b'x'; OUTPUT_BYTES_MAX];
    service.store.set(b"big", 0, Expiry::NEVER, &value, NOW);
    for (line, left) in [("get big\r\n", ""), ("get big big\r\n", "get ")] {
        let mut session = Session::new(service.limits.request);
        let (served, out) = turn(&service, &mut session, line.as_bytes());
        assert_eq!(served.stop, Stop::OutputFull);
        assert_eq!(session.rest_of_line(), left.as_bytes());
        assert_eq!(out.ends_with(b"END\r\n"), left.is_empty());
    }
}

#[test]
fn a_turn_is_bounded_in_commands_and_in_keys() {
    let service = service_with(StoreServerLimits::default());
    let mut session = Session::new(service.limits.request);
    let (served, out) = turn(&service, &mut session, &b"mn\r\n".repeat(100));
    assert_eq!(served.stop, Stop::TurnOver);
    assert_eq!((served.used, out.len()), (64 * 4, 64 * 4));
    let line = format!("get{}\r\n", " k".repeat(10_000)).into_bytes();
    let (served, out) = turn(&service, &mut session, &line);
    assert_eq!(served.stop, Stop::TurnOver);
    assert!(
        out.is_empty() && served.used < line.len() && served.used > 1500,
        "{served:?}"
    );
}

fn any_command() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(vec![
        "get a\r\n",
        "get a b c\n",
        "gets  b a  \r\n",
        "gat 100 a b\r\n",
        "set a 1 0 3\r\nabc\r\n",
        "set b 0 0 2\r\n10\r\n",
        "set b 0 0 4 noreply\r\n\r\n\r\n\r\n",
        "set a x 0 7\r\nget a\r\n\r\n",
        "append a 0 0 1\r\nz\r\n",
        "incr b 5\r\n",
        "delete a\r\n",
        "ms b 1 q T0 c k\r\n7\r\n",
        "mg b v k c t\r\n",
        "mg c N30 v\r\n",
        "ma n N0 J5 v\r\n",
        "md c I\r\n",
        "mn\r\n",
        "nonsense\r\n",
        "touch a 0\r\n",
        "flush_all\r\n",
        "get \t\x0b\r\n",
    ]);
    whole.prop_map(|text| text.as_bytes().to_vec())
}

proptest! {
    #[test]
    fn neither_cuts_nor_turns_change_the_replies(
        commands in prop::collection::vec(any_command(), 0..30),
        chunk in 1_usize..40,
        work in 1_usize..50,
    ) {
        let input = commands.concat();
        let whole = Client::new().send(&input);
        let mut client = Client::new();
        let mut replies = Vec::new();
        for piece in input.chunks(chunk) {
            replies.extend(client.send_with(piece, work));
        }
        prop_assert_eq!(replies.escape_ascii().to_string(), whole.escape_ascii().to_string());
        prop_assert!(client.pending.is_empty());
    }
}

#[test]
fn a_smaller_bound_takes_many_turns_and_is_answered_when_it_is_met() {
    let service = service_with(StoreServerLimits::default());
    fill(&service, 300_000, &[b'v'; 40]);
    let mut session = Session::new(service.limits.request);
    let mut input = &b"cache_memlimit 8\r\nmn\r\n"[..];
    let (mut replies, mut turns) = (Vec::new(), 0);
    loop {
        let items = service.store.statistics().curr_items;
        let (served, out) = turn(&service, &mut session, input);
        input = &input[served.used..];
        replies.extend_from_slice(&out);
        assert!(items - service.store.statistics().curr_items <= 4096);
        turns += 1;
        if served.stop == Stop::Starved {
            break;
        }
        assert_eq!(served.stop, Stop::TurnOver);
        // Another process could go on with it.
        let rest = session.rest_of_line();
        assert_eq!(rest.is_empty(), !replies.is_empty());
        assert!(rest.is_empty() || rest == b"cache_memlimit 8\r\n");
    }
    assert!(turns > 20, "{turns}");
    assert_eq!(replies, b"OK\r\nMN\r\n");
    assert_eq!(service.store.statistics().limit_maxbytes, 8 << 20);
}
