//go:build cgo && linux

package dwell

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
)

// mailbox has events of one connection handled in order, on a goroutine that there is only while
// there are some.
type mailbox struct {
	loop   *loop
	handle uint64

	mu      sync.Mutex
	letters []letter
	bytes   int
	runs    bool
	paused  bool
	// inFlight is what was written since the engine last told that all is out.
	inFlight int
	changed  chan struct{}
	gone     bool
}

// letter is something that has happened.
type letter struct {
	kind, detail uint32
	data         []byte
}

// unhandledBytes is how much may wait to be handled before no more is read.
const unhandledBytes = 256 << 10

// post is called by the loop with what has happened.
func (m *mailbox) post(ev *event, handle func(letter)) {
	l := letter{uint32(ev.kind), uint32(ev.detail), append([]byte(nil), m.loop.engine.bytes(ev)...)}
	m.mu.Lock()
	switch l.kind {
	case kindWritable:
		m.inFlight = 0
		m.broadcastLocked()
		m.mu.Unlock()
		return
	case kindWebSocketClosed, kindStreamClosed:
		m.gone = true
		m.broadcastLocked()
	}
	m.letters = append(m.letters, l)
	m.bytes += len(l.data)
	starts := !m.runs
	m.runs = true
	pauses := m.bytes > unhandledBytes && !m.paused && !m.gone
	m.paused = m.paused || pauses
	m.mu.Unlock()
	if pauses {
		m.loop.send(order{op: opPause, handle: m.handle}, "")
	}
	if !starts {
		return
	}
	if m.loop.Inline {
		m.run(handle)
	} else {
		m.loop.spawned++
		go m.run(handle)
	}
}

func (m *mailbox) broadcastLocked() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// run handles what there is.
func (m *mailbox) run(handle func(letter)) {
	for {
		m.mu.Lock()
		letters := m.letters
		m.letters, m.bytes = nil, 0
		resumes := m.paused && len(letters) == 0
		if resumes {
			m.paused = false
		}
		if len(letters) == 0 {
			m.runs = false
			m.mu.Unlock()
			if resumes {
				m.loop.send(order{op: opResume, handle: m.handle}, "")
			}
			return
		}
		m.mu.Unlock()
		for _, l := range letters {
			m.guarded(handle, l)
		}
	}
}

// guarded keeps a panic of a handler to its own connection.
func (m *mailbox) guarded(handle func(letter), l letter) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if err := recover(); err != nil && err != http.ErrAbortHandler {
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			logTo(m.loop.Server, "dwell: panic in a handler: %v\n%s", err, stack)
		}
		m.loop.send(order{op: opAbort, handle: m.handle}, "")
	}()
	handle(l)
	returned = true
}

// write sends an order with bytes, and waits while too many are on their way. It does not wait on
// a loop, which has to be free for the news that they have gone out.
func (m *mailbox) write(o order, data []byte) error {
	m.mu.Lock()
	for m.inFlight > windowBytes && !m.gone && !m.loop.Inline {
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		<-changed
		m.mu.Lock()
	}
	if m.gone {
		m.mu.Unlock()
		return fmt.Errorf("dwell: %w", errClientGone)
	}
	m.mu.Unlock()
	o.handle = m.handle
	m.loop.send(o, "", data)
	return nil
}
