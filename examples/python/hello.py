"""Says hello to every request, on http://127.0.0.1:8000/."""

from dwell import MG_EV_HTTP_MSG, Manager


def handler(conn, event, data):
    if event == MG_EV_HTTP_MSG:
        conn.reply(200, "hello\n")


manager = Manager(handler)
manager.listen("http://127.0.0.1:8000")
manager.run()
