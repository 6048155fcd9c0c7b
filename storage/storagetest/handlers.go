package storagetest

import (
	"context"

	"understudy/internal/encryption"
)

// Handlers encrypt data keys, badly, and leave names of metadata readable whose length is even.
type Handlers struct{}

var _ encryption.Handlers = Handlers{}

func xor(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] ^ 0x5a
	}
	return out
}

// Wrap implements encryption.Handlers.
func (Handlers) Wrap(_ context.Context, _ encryption.Context, key []byte) ([]byte, error) {
	return xor(key), nil
}

// Unwrap implements encryption.Handlers.
func (Handlers) Unwrap(_ context.Context, list []encryption.Wrapped) ([]encryption.Unwrapped, error) {
	out := make([]encryption.Unwrapped, len(list))
	for i, w := range list {
		out[i].Key = xor(w.Key)
	}
	return out, nil
}

// Readable implements encryption.Handlers.
func (Handlers) Readable(_ context.Context, _ encryption.Context, names []string) ([]bool, error) {
	out := make([]bool, len(names))
	for i, name := range names {
		out[i] = len(name)%2 == 0
	}
	return out, nil
}

// Close implements encryption.Handlers.
func (Handlers) Close() error { return nil }
