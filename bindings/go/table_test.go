//go:build cgo && linux

package dwell

import "testing"

func TestTableKnowsAnEarlierHandleOfAPlace(t *testing.T) {
	var sockets table[*WebSocket]
	socket := func(handle uint64) *WebSocket {
		s := &WebSocket{}
		s.mailbox.handle = handle
		sockets.put(s, handle)
		return s
	}
	first, second := uint64(1<<32|3), uint64(2<<32|3)
	if got := sockets.get(first); got != nil {
		t.Error("an empty table holds", got)
	}
	socket(first)
	s := socket(second)
	sockets.remove(first)
	if sockets.get(first) != nil || sockets.get(second) != s {
		t.Error("the earlier handle names the later socket, or has removed it")
	}
	sockets.remove(second)
	if sockets.get(second) != nil {
		t.Error("not removed")
	}
}
