//go:build cgo && linux

package dwell

import (
	"sync"
	"time"
)

// workers are goroutines that have run a handler and may run another: their stacks have grown to
// what handlers need, which a fresh goroutine would have to do again. Those that nobody needed for
// a second end, so that an idle server has none.
type workers struct {
	mu    sync.Mutex
	idle  []chan *exchange
	spare int
	timer *time.Timer
	armed bool
	ended bool
}

// workersTick is how long a worker is kept that is not needed.
const workersTick = time.Second

// serve has a worker run the handler of an exchange.
func (ws *workers) serve(e *exchange) {
	ws.mu.Lock()
	last := len(ws.idle) - 1
	if last < 0 {
		ws.mu.Unlock()
		go ws.work(e)
		return
	}
	worker := ws.idle[last]
	ws.idle = ws.idle[:last]
	ws.spare = min(ws.spare, last)
	ws.mu.Unlock()
	worker <- e
}

// work runs handlers until there are none for it.
func (ws *workers) work(e *exchange) {
	own := make(chan *exchange, 1)
	for e != nil {
		e.serve()
		e = nil
		if !ws.rest(own) {
			return
		}
		e = <-own
	}
}

// rest takes a worker in; false when it is not to wait.
func (ws *workers) rest(own chan *exchange) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended {
		return false
	}
	ws.idle = append(ws.idle, own)
	if !ws.armed {
		ws.armed = true
		if ws.timer == nil {
			ws.timer = time.AfterFunc(workersTick, ws.tick)
		} else {
			ws.timer.Reset(workersTick)
		}
	}
	return true
}

// tick lets those go that nobody has needed since the last one.
func (ws *workers) tick() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, worker := range ws.idle[:ws.spare] {
		worker <- nil
	}
	rest := copy(ws.idle, ws.idle[ws.spare:])
	clear(ws.idle[rest:])
	ws.idle = ws.idle[:rest]
	ws.spare = rest
	ws.armed = rest > 0
	if ws.armed {
		ws.timer.Reset(workersTick)
	}
}

// end lets all go.
func (ws *workers) end() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = true
	for _, worker := range ws.idle {
		worker <- nil
	}
	ws.idle, ws.spare = nil, 0
	if ws.timer != nil {
		ws.timer.Stop()
	}
}
