// Package callids maps ids and names of tool calls to those that a provider accepts, so that a thread can change models: providers refuse
// ids that are too long, or have characters, that another provider writes. What is mapped depends on the id alone, so calls and results
// stay together.
package callids

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	word         = alphanumeric + "_-"
)

// Fit returns an id of at most n characters, of at least 29.
func Fit(id string, n int) string {
	if id != "" && len(id) <= n {
		return id
	}
	return "call_" + sum(id)[:24]
}

// Word is Fit for ids of letters, digits, _ and -.
func Word(id string, n int) string {
	if strings.Trim(id, word) != "" {
		return "call_" + sum(id)[:24]
	}
	return Fit(id, n)
}

// Short returns an id of nine letters and digits.
func Short(id string) string {
	if len(id) == 9 && strings.Trim(id, alphanumeric) == "" {
		return id
	}
	return sum(id)[:9]
}

// Name returns a name of a tool that no provider refuses, for one that a model made up: of letters, digits, _ and -, 64 at most.
func Name(name string) string {
	out := strings.Map(func(r rune) rune {
		if strings.ContainsRune(word, r) {
			return r
		}
		return '_'
	}, name)
	if out == "" {
		return "unknown"
	}
	return out[:min(len(out), 64)]
}

func sum(id string) string {
	h := sha256.Sum256([]byte(id))
	return hex.EncodeToString(h[:])
}
