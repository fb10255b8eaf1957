"""A chat room over WebSocket: open http://127.0.0.1:8000/ in two windows."""

import sys

from dwell import Event, Manager

PAGE = """<!doctype html>
<title>Chat</title>
<form><input name="text" autofocus autocomplete="off" placeholder="Say something"></form>
<pre></pre>
<script>
  const socket = new WebSocket(`ws://${location.host}/chat`);
  const said = document.querySelector("pre");
  socket.onmessage = (event) => (said.textContent = `${event.data}\\n${said.textContent}`);
  socket.onclose = () => (said.textContent = `(closed)\\n${said.textContent}`);
  document.forms[0].onsubmit = (event) => {
    event.preventDefault();
    socket.send(event.target.text.value);
    event.target.reset();
  };
</script>
"""
members = {}


def say(text):
    """Tells everybody."""
    for member in members:
        member.ws_send(text)


def handler(conn, event, data):
    if event == Event.HTTP_MSG and data.uri == "/chat":
        conn.ws_upgrade(data)
    elif event == Event.HTTP_MSG:
        conn.reply(200, PAGE, {"Content-Type": "text/html; charset=utf-8"})
    elif event == Event.WS_OPEN:
        members[conn] = f"guest {conn.id}"
        say(f"{members[conn]} came")
    elif event == Event.WS_MSG:
        say(f"{members[conn]}: {data.text}")
    elif event == Event.CLOSE and conn in members:
        gone = members.pop(conn)
        say(f"{gone} left")


with Manager(handler) as manager:
    manager.listen(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
    manager.run()
