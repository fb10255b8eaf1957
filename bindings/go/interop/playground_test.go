package interop

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"
)

// The page is a copy, as a module embeds no files of others.
func TestPlaygroundPageIsTheEngines(t *testing.T) {
	copied, err := os.ReadFile("../examples/playground/page.html")
	if err != nil {
		t.Fatal(err)
	}
	original, err := os.ReadFile("../../../crates/engine/examples/playground/page.html")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(copied, original) {
		t.Error("copy crates/engine/examples/playground/page.html to examples/playground")
	}
}

// The playground serves the same, whoever serves it.
func TestPlayground(t *testing.T) {
	program := filepath.Join(t.TempDir(), "playground")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../examples/playground"
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, kind := range []string{"std", "dwell"} {
		t.Run(kind, func(t *testing.T) {
			url := playground(t, program, kind)
			whole := fetch(t, url, "")
			for _, link := range []string{"/sse", "/file", "/ws", "/ws-frames", "/ws-goroutine", "/ws-gorilla"} {
				if !strings.Contains(whole, link+`"`) && !strings.Contains(whole, link+"<") {
					t.Errorf("the page does not have %s", link)
				}
			}
			if strings.Count(whole, "data-socket=") != 4 {
				t.Errorf("the page has other WebSockets: %s", whole)
			}
			if got := fetch(t, url+"file", "bytes=0-14"); got != "<!doctype html>" {
				t.Errorf("/file: %q", got)
			}
			if got := fetch(t, url+"-/runtime", ""); !strings.HasPrefix(got, "goroutines ") {
				t.Errorf("/-/runtime: %q", got)
			}
			resp, err := http.Get(url + "sse")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "id: 1\n" || err != nil {
				t.Errorf("/sse: %q %v", line, err)
			}
			for _, path := range []string{"ws", "ws-frames", "ws-goroutine", "ws-gorilla"} {
				isEcho(t, "ws"+strings.TrimPrefix(url, "http")+path)
			}
		})
	}
}

// playground starts the program and returns its address.
func playground(t *testing.T, program, kind string) string {
	t.Helper()
	server := exec.Command(program, "-type", kind, "-listen", "127.0.0.1:0")
	said, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "open ")
}

func fetch(t *testing.T, url, byteRange string) string {
	t.Helper()
	request, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if byteRange != "" {
		request.Header.Set("Range", byteRange)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// isEcho checks that a WebSocket sends messages back, answers pings and closes in order.
func isEcho(t *testing.T, url string) {
	t.Helper()
	c, _, err := gorilla.DefaultDialer.Dial(url, nil)
	if err != nil {
		t.Error(url, err)
		return
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	ponged := false
	c.SetPongHandler(func(payload string) error {
		ponged = payload == "there?"
		return nil
	})
	c.WriteControl(gorilla.PingMessage, []byte("there?"), time.Now().Add(time.Second))
	for _, size := range []int{0, 5, 126, 70_000, 1 << 20} {
		message := strings.Repeat("x", size)
		if err := c.WriteMessage(gorilla.TextMessage, []byte(message)); err != nil {
			t.Error(url, err)
			return
		}
		if kind, got, err := c.ReadMessage(); err != nil || kind != gorilla.TextMessage || string(got) != message {
			t.Errorf("%s: %d bytes: %v, %d bytes", url, size, err, len(got))
			return
		}
	}
	c.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
	if _, _, err := c.ReadMessage(); !gorilla.IsCloseError(err, 1000) {
		t.Errorf("%s: closed by %v", url, err)
	}
	if !ponged {
		t.Errorf("%s: no pong", url)
	}
}
