//go:build cgo && linux

package dwell

import (
	"encoding/binary"
	"testing"
)

// headed makes an exchange as the loop does of a request with these fields and no body.
func headed(fields ...string) *exchange {
	head := "GET/a?b=c127.0.0.1:1"
	words := []uint32{0, 0, 0, 3, 3, 6, 9, 11, uint32(len(fields) / 2), 0, 0}
	for _, part := range fields {
		words = append(words, uint32(len(head)), uint32(len(part)))
		head += part
	}
	table := []byte(head)
	for _, word := range words {
		table = binary.NativeEndian.AppendUint32(table, word)
	}
	return &exchange{head: string(table), table: len(head), bodyEnded: true}
}

func TestRequestIsMadeInThePlaceOfItsExchange(t *testing.T) {
	plain := headed("Host", "h")
	full := headed("Accept", "1", "Host", "h", "X-A", "2", "Accept", "3", "X-B", "4")
	// The header of a request, and what it holds once it has a field: groups and values.
	for _, each := range []struct {
		of  *exchange
		max float64
	}{{plain, 1}, {full, 4}} {
		made := testing.AllocsPerRun(100, func() {
			if _, err := each.of.newRequest(); err != nil {
				t.Fatal(err)
			}
		})
		if made > each.max {
			t.Errorf("%v pieces of memory, and not at most %v", made, each.max)
		}
	}
	req, err := full.newRequest()
	if err != nil || req != &full.request || req.Context() != (*requestContext)(full) {
		t.Fatalf("%p is not %p, or has another context; %v", req, &full.request, err)
	}
	if req.Method != "GET" || req.URL.RawQuery != "b=c" || req.Host != "h" {
		t.Errorf("%v", req)
	}
	got := req.Header
	if len(got) != 3 || len(got["Accept"]) != 2 || got["Accept"][1] != "3" ||
		got.Get("X-A") != "2" || got.Get("X-B") != "4" {
		t.Errorf("%v", got)
	}
}
