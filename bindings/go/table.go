//go:build cgo && linux

package dwell

// table holds what belongs to handles, each at the place that the lower half of its handle names.
// It is smaller than a map: the engine uses its places anew.
type table[T interface {
	comparable
	id() uint64
}] []T

func (t *table[T]) put(held T, handle uint64) {
	place := int(uint32(handle))
	for place >= len(*t) {
		var none T
		*t = append(*t, none)
	}
	(*t)[place] = held
}

// get returns what belongs to a handle; the zero value if there is nothing, as for the handle of an
// earlier one of its place.
func (t table[T]) get(handle uint64) T {
	var none T
	if place := int(uint32(handle)); place < len(t) {
		if held := t[place]; held != none && held.id() == handle {
			return held
		}
	}
	return none
}

func (t table[T]) remove(handle uint64) {
	var none T
	if t.get(handle) != none {
		t[uint32(handle)] = none
	}
}
