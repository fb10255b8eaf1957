//go:build cgo && linux

package dwell

import (
	"fmt"
	"runtime"
)

// secured begins the verification of a client, at the end of its handshake: on a goroutine of its
// own, as the callbacks of a program may wait.
func (l *loop) secured(handle uint64) {
	v, c := l.verification(), l.clients[handle]
	if v == nil || c == nil || c.isBegun {
		return
	}
	state, raw, ok := l.engine.peerCertificates(handle)
	if !ok {
		return
	}
	c.state, c.isBegun = state, true
	go l.verify(v, c, raw)
}

// verification is how the clients of a loop are verified; nil where they are not.
func (l *loop) verification() *verification {
	if l.bridge == nil || l.bridge.identity == nil {
		return nil
	}
	return l.bridge.identity.verification
}

// verify decides about a client. The connection of one that is refused is closed, and so is that of
// one whose verification panics, or ends its goroutine.
func (l *loop) verify(v *verification, c *client, raw [][]byte) {
	defer close(c.done)
	defer func() {
		if c.isVerified {
			return
		}
		if err := recover(); err != nil {
			const size = 64 << 10
			stack := make([]byte, size)
			stack = stack[:runtime.Stack(stack, false)]
			c.err = fmt.Errorf("panic: %v\n%s", err, stack)
		}
		if c.err == nil {
			c.err = errNotVerified
		}
		logTo(l.Server, "http: TLS handshake error from %s: %v", c.remote, c.err)
		l.send(order{op: opAbort, handle: c.handle}, "")
	}()
	c.err = v.verify(&c.state, raw)
	c.state.HandshakeComplete = true
	c.isVerified = c.err == nil
}

// isTrusted waits until the client of a request is verified; false where it is refused. Without a
// verification every client is trusted. One of whose handshake nothing was told is not.
func (e *exchange) isTrusted() bool {
	if e.loop.verification() == nil {
		return true
	}
	if e.client == nil {
		return false
	}
	select {
	case <-e.client.done:
	default:
		// On a loop that runs the handler nothing else would be done meanwhile.
		e.waits()
		<-e.client.done
	}
	return e.client.isVerified
}
