//! Polls and streams that one change wakes, of which some take no more than a part at once.

use super::harness::{Edge, cursor};

#[test]
fn readers_with_little_room_get_what_the_others_get() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let since = cursor("one");
    let mut clients = Vec::new();
    for place in 0..20 {
        // Room for nothing, for a part of the head, for nearly all, and for more than all.
        let room = [1, 100, 390, 4096][place % 4];
        let mut client = edge.connect_with_window(room);
        client.send(&format!("GET /poll/a?since={since}&wait=50s"));
        clients.push(client);
    }
    edge.turn_until_waiting(20);
    let value = "two ".repeat(30);
    edge.set("/poll/a", &value);
    for client in &mut clients {
        assert_eq!(edge.answer(client), (200, value.clone()));
    }
    // They are as they were, and are asked again.
    let since = cursor(&value);
    for client in &mut clients {
        client.send(&format!("GET /poll/a?since={since}&wait=50s"));
    }
    edge.turn_until_waiting(20);
    edge.set("/poll/a", "three");
    for client in &mut clients {
        assert_eq!(edge.answer(client), (200, "three".to_owned()));
    }
    edge.assert_nothing_left();
    assert_eq!(edge.driver.output.held(), 0);
}
