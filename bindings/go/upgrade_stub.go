//go:build cgo && linux

package dwell

import "fmt"

func typeName(v any) string { return fmt.Sprintf("%T", v) }

type WebSocket struct{}

func (*WebSocket) tell(*event) {}

type Stream struct{}

func (*Stream) tell(*event) {}

func (e *exchange) upgraded(uint64) {}
