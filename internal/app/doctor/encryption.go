package doctor

import (
	"fmt"

	"understudy/internal/config"
)

// encryption reports whether what is written is encrypted. With which key the database is, only a start can compare.
func (d *doctor) encryption(cfg *config.Config) {
	switch {
	case cfg.Encrypts():
		d.say("encryption", Fine, "content is encrypted by the handlers of encryption.path, which the server loads at its start", "")
	case len(cfg.Keys) == 0:
	case len(cfg.Keys) == 1:
		d.say("encryption", Fine, "content is encrypted with the key in LANGGRAPH_AES_KEY", "")
	default:
		d.say("encryption", Warning, fmt.Sprintf("LANGGRAPH_AES_KEY has %d keys: the key is being changed", len(cfg.Keys)), "run understudy encrypt --rotate, and remove the old keys")
	}
	if (len(cfg.Keys) > 0 || cfg.Encrypts()) && cfg.History.JSONL != "" {
		d.say("encryption", Warning, "the files of history.jsonl are plain text", "remove history.jsonl, or encrypt its disk")
	}
}
