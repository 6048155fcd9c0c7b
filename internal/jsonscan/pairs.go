package jsonscan

import (
	"bytes"
	"encoding/json"
)

// Pairs splits arrays of two items of which the second mostly is that of the array before, such as [chunk, metadata]. It compares that one instead of
// scanning it. The zero value is usable.
type Pairs struct{ second []byte }

// Split returns the two items of an array, and whether the second is the same as in the call before. ok is false for anything else, as Elements
// would show. The items share memory with array.
func (p *Pairs) Split(array []byte) (first, second json.RawMessage, again, ok bool) {
	// An object that follows a comma and ends before the last bracket is the last item; that no other is before it is seen by the end of the first.
	if at := len(array) - 1 - len(p.second); len(p.second) > 1 && at > 2 && array[0] == '[' && array[len(array)-1] == ']' && array[at-1] == ',' &&
		bytes.Equal(array[at:len(array)-1], p.second) && Skip(array, 1) == at-1 {
		return array[1 : at-1 : at-1], array[at : len(array)-1 : len(array)-1], true, true
	}
	items, ok := Elements(array)
	if !ok || len(items) != 2 {
		return nil, nil, false, false
	}
	again = bytes.Equal(items[1], p.second)
	if !again {
		p.second = append(p.second[:0], items[1]...)
	}
	return items[0], items[1], again, true
}
