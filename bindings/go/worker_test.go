//go:build cgo && linux

package dwell

import (
	"io"
	"net/http"
	"testing"
)

// Requests are taken in the order in which they came, whatever comes meanwhile, and what was taken
// is not kept.
func TestWorkersTakeInOrder(t *testing.T) {
	// One is coming, so that none is woken.
	ws := workers{isComing: true}
	var came, taken uint64
	for round := range 1000 {
		for range 1 + round%7 {
			ws.serve(&exchange{handle: came})
			came++
		}
		for range 1 + round%5 {
			ws.mu.Lock()
			e := ws.takeLocked()
			ws.mu.Unlock()
			if e == nil {
				if taken != came {
					t.Fatalf("none of the %d that wait is taken", came-taken)
				}
				break
			}
			if e.handle != taken {
				t.Fatalf("number %d was taken, not %d", e.handle, taken)
			}
			taken++
		}
		if waiting := int(came - taken); len(ws.queue) > 2*waiting {
			t.Fatalf("%d places for %d that wait", len(ws.queue), waiting)
		}
	}
}

// A handler that waits holds up none of those that came with it.
func TestWorkersBesideOneThatWaits(t *testing.T) {
	noLeaks(t)
	const many = 20
	arrived, release := make(chan struct{}, many), make(chan struct{})
	s := start(t, false, Options{Pollers: 1}, &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-release
		})})
	for range many {
		io.WriteString(s.dial(), get11)
	}
	for range many {
		<-arrived
	}
	close(release)
}
