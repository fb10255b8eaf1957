//go:build cgo && linux

package dwell

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestHTTP2ClientsOfOthers has curl, nghttp and h2load ask without TLS, by prior knowledge.
func TestHTTP2ClientsOfOthers(t *testing.T) {
	noLeaks(t)
	s := start(t, false, Options{H2C: true}, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Proto)
		}),
	})
	for _, one := range []struct {
		command []string
		wanted  []string
	}{
		{[]string{"curl", "-sS", "--http2-prior-knowledge", "-w", "|%{http_version}"}, []string{"HTTP/2.0|2"}},
		{[]string{"curl", "-sS", "--http2", "-w", "|%{http_version}"}, []string{"HTTP/1.1|1.1"}},
		{[]string{"nghttp", "-v", "-m", "3"}, []string{":status: 200", "HTTP/2.0"}},
		{
			[]string{"h2load", "-n", "500", "-c", "5", "-m", "20"},
			[]string{"500 succeeded, 0 failed, 0 errored, 0 timeout", "500 2xx"},
		},
	} {
		if _, err := exec.LookPath(one.command[0]); err != nil {
			t.Logf("%s is not installed", one.command[0])
			continue
		}
		out, err := exec.Command(one.command[0], append(one.command[1:], s.url())...).CombinedOutput()
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
