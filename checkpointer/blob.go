package checkpointer

import (
	"github.com/tinylib/msgp/msgp"

	"understudy/internal/jsonplus"
)

// Bytes returns the value as written. It copies lists stored by item.
func (b *Blob) Bytes() []byte {
	if b.Items == nil {
		return b.Data
	}
	return b.AppendTo(make([]byte, 0, b.Size()))
}

// Size returns the length of the value as written.
func (b *Blob) Size() int {
	if b.Items == nil {
		return len(b.Data)
	}
	n := b.header()
	size := len(n)
	for _, item := range b.Items {
		size += len(item)
	}
	return size
}

// AppendTo appends the value as written.
func (b *Blob) AppendTo(dst []byte) []byte {
	if b.Items == nil {
		return append(dst, b.Data...)
	}
	dst = append(dst, b.header()...)
	for _, item := range b.Items {
		dst = append(dst, item...)
	}
	return dst
}

func (b *Blob) header() []byte {
	return msgp.AppendArrayHeader(make([]byte, 0, 5), uint32(len(b.Items)))
}

// SplitList returns the items of a value that is a msgpack array; an error for other values.
func (b *Blob) SplitList() ([][]byte, error) {
	if b.Items != nil {
		return b.Items, nil
	}
	return jsonplus.SplitArray(b.Data)
}
