package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// encryptionKey holds the key for the content of the database, and behind commas those from before.
	encryptionKey = "LANGGRAPH_AES_KEY"
	// encryptedKeys names keys of metadata that must not be readable.
	encryptedKeys = "LANGGRAPH_AES_JSON_KEYS"
)

// encryption reads the keys for the database. They have no flag, because arguments of a process are visible to others.
func (src Source) encryption(c *Config) Mistakes {
	if text, place := src.lookup(c, encryptedKeys); place != "" {
		c.Storage.UnindexedKeys = split(text)
	}
	text, place := src.lookup(c, encryptionKey)
	if place == "" {
		return nil
	}
	if c.Encrypts() && !c.dataOnly {
		return Mistakes{{File: filepath.Base(c.File), Text: "encryption: has a path, and " + place + " is set; only one of the two encrypts. Run understudy encrypt with both to change over to " +
			"the handlers, and then remove the variable; or remove the section"}}
	}
	sizes := []int{16, 24, 32}
	if slices.Contains(sizes, len(text)) { // a key may have commas
		c.Storage.Keys = [][]byte{[]byte(text)}
		return nil
	}
	for n, key := range strings.Split(text, ",") {
		key = strings.TrimSpace(key)
		if !slices.Contains(sizes, len(key)) {
			return Mistakes{{Text: fmt.Sprintf("%s: key %d has %d bytes; write 16, 24 or 32, such as the output of: openssl rand -hex 16", place, n+1, len(key))}}
		}
		c.Storage.Keys = append(c.Storage.Keys, []byte(key))
	}
	return nil
}

// encryption reads the handlers that encrypt the keys of the content.
func (f *file) encryption(v value, key string) {
	if v.empty() {
		return
	}
	f.section(v, key, map[string]func(value, string){"path": f.object(&f.c.Encryption, "./encryption.py:encryption")})
	if !f.c.Encryption.IsSet() && len(f.mistakes) == 0 {
		f.wrong(v, key, `has no path; write {"path": "./encryption.py:encryption"}`)
	}
}

// Encrypts reports whether handlers in Python encrypt the keys of the content.
func (c *Config) Encrypts() bool { return c.Encryption.IsSet() && !c.Server.IgnoreAuth }
