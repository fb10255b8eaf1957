//go:build cgo && linux

package dwell

import (
	"sync"
	"time"
)

// workers are goroutines that run handlers, in the order in which their requests came. Their stacks
// have grown to what handlers need, which a fresh goroutine would have to do again. Those that
// nobody needed for a second end, so that an idle server has none.
//
// While requests wait, one worker is on its way to them: whoever takes one and sees others behind
// it has the next worker woken before the handler runs, which may wait for long. So quick handlers
// run one after the other on one worker, and slow ones beside one another.
type workers struct {
	mu sync.Mutex
	// queue are requests that wait for a worker, of which head were taken.
	queue []*exchange
	head  int
	// isComing tells that a worker was woken that has yet to look into the queue.
	isComing bool
	idle     []chan bool
	spare    int
	timer    *time.Timer
	armed    bool
	ended    bool
}

// workersTick is how long a worker is kept that is not needed.
const workersTick = time.Second

// serve has a worker run the handler of an exchange.
func (ws *workers) serve(e *exchange) {
	ws.mu.Lock()
	ws.queue = append(ws.queue, e)
	ws.wakeLocked()
	ws.mu.Unlock()
}

// wakeLocked has a worker come, if none does.
func (ws *workers) wakeLocked() {
	if ws.isComing {
		return
	}
	ws.isComing = true
	last := len(ws.idle) - 1
	if last < 0 {
		go ws.work()
		return
	}
	ws.idle[last] <- true
	ws.idle = ws.idle[:last]
	ws.spare = min(ws.spare, last)
}

// work runs handlers until there are none for it.
func (ws *workers) work() {
	own := make(chan bool, 1)
	for isNeeded := true; isNeeded; isNeeded = <-own {
		ws.mu.Lock()
		ws.isComing = false
		for e := ws.takeLocked(); e != nil; e = ws.takeLocked() {
			ws.mu.Unlock()
			e.serve()
			ws.mu.Lock()
		}
		rests := ws.restLocked(own)
		ws.mu.Unlock()
		if !rests {
			return
		}
	}
}

// takeLocked takes the request that has waited longest, and sees to those behind it.
func (ws *workers) takeLocked() *exchange {
	if ws.head == len(ws.queue) {
		return nil
	}
	e := ws.queue[ws.head]
	ws.queue[ws.head] = nil
	ws.head++
	if ws.head < len(ws.queue) {
		ws.wakeLocked()
	}
	if 2*ws.head >= len(ws.queue) {
		// What was taken is more than what waits: the rest moves to the front.
		rest := copy(ws.queue, ws.queue[ws.head:])
		clear(ws.queue[rest:])
		ws.queue, ws.head = ws.queue[:rest], 0
	}
	return e
}

// restLocked takes a worker in; false when it is not to wait.
func (ws *workers) restLocked(own chan bool) bool {
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
		worker <- false
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
		worker <- false
	}
	ws.idle, ws.spare = nil, 0
	if ws.timer != nil {
		ws.timer.Stop()
	}
}
