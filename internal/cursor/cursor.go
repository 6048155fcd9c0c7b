// Package cursor seals where a list continues. The row there may belong to another caller, so those who read the list must not see which it is.
package cursor

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"strings"
)

// Size is the number of bytes of a key: half of it encrypts, half makes nonces.
const Size = 64

// prefix distinguishes sealed text from a place that a client has written itself.
const prefix = "c."

// Sealer seals places in lists. A nil one leaves them as they are. It may be used at once.
type Sealer struct {
	aead   cipher.AEAD
	nonces []byte
}

// New returns a sealer. All servers of a database need the same key, of Size bytes.
func New(key []byte) (*Sealer, error) {
	if len(key) != Size {
		return nil, fmt.Errorf("a key for cursors has %d bytes, not %d", len(key), Size)
	}
	block, err := aes.NewCipher(key[:Size/2])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &Sealer{aead, key[Size/2:]}, err
}

// Seal returns a form of a place that says nothing about it but its length, and is the same each time; "" stays "".
func (s *Sealer) Seal(place string) string {
	if s == nil || place == "" {
		return place
	}
	// Equal places get equal nonces, and others different ones.
	mac := hmac.New(sha256.New, s.nonces)
	mac.Write([]byte(place))
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	return prefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, []byte(place), nil))
}

// Open returns what Seal was given. What it has not made is a place that a client may know itself, and stays as it is.
func (s *Sealer) Open(text string) string {
	if place, ok := s.Unseal(text); ok {
		return place
	}
	return text
}

// Unseal returns what Seal was given, and whether Seal has made the text.
func (s *Sealer) Unseal(text string) (string, bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if s == nil || !ok || strings.ContainsAny(rest, "\r\n") { // which a decoder passes over
		return "", false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return "", false
	}
	place, err := s.aead.Open(nil, sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():], nil)
	return string(place), err == nil
}

// Derived returns a key for another purpose than that of key, from which key cannot be found.
func Derived(key []byte, purpose string) []byte {
	mac := hmac.New(sha512.New, key) // as many bytes as Size
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}
