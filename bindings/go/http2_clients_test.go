//go:build cgo && linux

package dwell

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// python has the library h2: it is the one of `make install`, or that of the machine.
func python() string {
	for _, one := range []string{"../../.venv/bin/python", "python3"} {
		if exec.Command(one, "-c", "import h2").Run() == nil {
			return one
		}
	}
	return "a python with the library h2"
}

// TestHTTP2ClientsOfOthers has clients that others have written ask without TLS, by prior
// knowledge, and under it.
func TestHTTP2ClientsOfOthers(t *testing.T) {
	noLeaks(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	})
	plain := start(t, false, Options{H2C: true}, &http.Server{Handler: handler}).url()
	srv := &Server{Server: &http.Server{Handler: handler}, Options: Options{H2: true}}
	secure := "https://" + startTLS(t, ecdsaPair(t), srv).addr
	curl := []string{"curl", "-sS", "--insecure", "-w", "|%{http_version}"}
	load := []string{"h2load", "-n", "500", "-c", "5", "-m", "20"}
	loaded := []string{"500 succeeded, 0 failed, 0 errored, 0 timeout", "500 2xx"}
	ask := []string{python(), "../../tests/clients/python_h2.py"}
	for _, one := range []struct {
		command []string
		url     string
		wanted  []string
	}{
		{append(curl, "--http2-prior-knowledge"), plain, []string{"HTTP/2.0|2"}},
		{append(curl, "--http2"), plain, []string{"HTTP/1.1|1.1"}},
		{append(curl, "--http2"), secure, []string{"HTTP/2.0|2"}},
		{append(curl, "--http1.1"), secure, []string{"HTTP/1.1|1.1"}},
		{[]string{"nghttp", "-v", "-m", "3"}, plain, []string{":status: 200", "HTTP/2.0"}},
		{[]string{"nghttp", "-v", "-m", "3"}, secure, []string{":status: 200", "HTTP/2.0"}},
		{load, plain, loaded},
		{load, secure, append(loaded, "Application protocol: h2")},
		{ask, plain, []string{"50 times HTTP/2.0"}},
		{ask, secure, []string{"50 times HTTP/2.0"}},
	} {
		if _, err := exec.LookPath(one.command[0]); err != nil {
			t.Logf("%s is not installed", one.command[0])
			continue
		}
		out, err := exec.Command(one.command[0], append(one.command[1:], one.url)...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", one.command, err, out)
		}
		for _, text := range one.wanted {
			if !strings.Contains(string(out), text) {
				t.Errorf("%v: no %q in %s", one.command, text, out)
			}
		}
	}
}
