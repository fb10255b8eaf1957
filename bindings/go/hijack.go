//go:build cgo && linux

package dwell

import (
	"net"
	"net/http"
	"os"
	"syscall"
)

// detach takes the connection out of the engine, with what came on it that was not read.
func (e *exchange) detach() (net.Conn, []byte, error) {
	if e.flags&flagSecure != 0 {
		// Its keys are the engine's.
		return nil, nil, &UnsupportedError{"Hijack under TLS"}
	}
	e.mu.Lock()
	if e.gone || e.finished {
		e.mu.Unlock()
		return nil, nil, errClientGone
	}
	e.finished = true
	e.detached = make(chan detached, 1)
	e.mu.Unlock()
	e.conn.leaves()
	e.send(order{op: opDetach}, "")
	e.waits()
	d := <-e.detached
	if d.fd < 0 {
		e.conn.set(http.StateClosed)
		return nil, nil, errNoSocket
	}
	e.conn.set(http.StateHijacked)
	file := os.NewFile(uintptr(d.fd), "")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, nil, err
	}
	return conn, append(e.takeBody(), d.input...), nil
}

// takeBody takes what has come of the body and was not read: until the connection has left the
// engine, that may become more.
func (e *exchange) takeBody() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := e.upload
	if u == nil {
		return nil
	}
	left := u.unread[u.start:]
	u.unread, u.start = nil, 0
	return left
}

// dupDescriptor returns a descriptor of the same file or socket, for the engine.
func dupDescriptor(source syscall.Conn) (int, error) {
	raw, err := source.SyscallConn()
	if err != nil {
		return -1, err
	}
	copied, dupErr := -1, error(nil)
	err = raw.Control(func(fd uintptr) { copied, dupErr = dup(int(fd)) })
	if err == nil {
		err = dupErr
	}
	return copied, err
}

// dup duplicates a descriptor, closed on exec from the first moment: a process that is forked
// meanwhile does not inherit it.
func dup(fd int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("fcntl", errno)
	}
	return int(n), nil
}
