//go:build cgo && linux

package dwell

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

const (
	idleMax = 10_000
	// otherDescriptors are those that a process has besides.
	otherDescriptors = 500
	clientsOf        = "DWELL_TEST_CLIENTS_OF"
	requestOf        = "DWELL_TEST_REQUEST"
)

// The clients are in a process of their own: both ends of so many need too many descriptors.
func TestIdleConnectionsHaveNoGoroutine(t *testing.T) {
	if addr := os.Getenv(clientsOf); addr != "" {
		holdClients(t, addr, os.Getenv(requestOf))
		return
	}
	handler := &WebSocketHandler{
		OnMessage: func(s *WebSocket, isText bool, message []byte) { s.Send(isText, message) },
	}
	for name, request := range map[string]string{"HTTP": get11, "WebSocket": handshake} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if name == "HTTP" {
					hello(w, r)
				} else if _, err := Upgrade(w, r, handler); err != nil {
					t.Error(err)
				}
			})
			s.exchange(request)
			before := runtime.NumGoroutine()
			clients := exec.Command(os.Args[0], "-test.run=^TestIdleConnectionsHaveNoGoroutine$")
			clients.Env = append(os.Environ(), clientsOf+"="+s.addr, requestOf+"="+request)
			leave, err := clients.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			said, err := clients.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := clients.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(said)
			if line, err := lines.ReadString('\n'); line != fmt.Sprintln("held", idleCount()) {
				rest, _ := io.ReadAll(lines)
				t.Errorf("%v: %s%s", err, line, rest)
			}
			eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+1 })
			if count := descriptors(); count < idleCount() {
				t.Errorf("%d descriptors are open", count)
			}
			leave.Close()
			io.Copy(io.Discard, lines)
			if err := clients.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// idleCount is as many connections as the system lets one process have, within reason.
func idleCount() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return otherDescriptors
	}
	return min(idleMax, int(limit.Cur)-otherDescriptors)
}

// holdClients has one request answered on each of many connections, and keeps them until told.
func holdClients(t *testing.T, addr, request string) {
	for range idleCount() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, request)
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 256), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			echoed(t, c)
		} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("held", idleCount())
	io.Copy(io.Discard, os.Stdin)
}

// echoed has a message sent back.
func echoed(t *testing.T, c net.Conn) {
	io.WriteString(c, "\x81\x82\x00\x00\x00\x00hi")
	answer := make([]byte, 4)
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "\x81\x02hi" {
		t.Fatalf("%q %v", answer, err)
	}
}
