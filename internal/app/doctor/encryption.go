package doctor

import (
	"fmt"

	"understudy/internal/config"
)

// encryption reports whether what is written is encrypted. With which key the database is, only a start can compare.
func (d *doctor) encryption(cfg *config.Config) {
	switch len(cfg.Keys) {
	case 0:
	case 1:
		d.say("encryption", Fine, "content is encrypted with the key in LANGGRAPH_AES_KEY", "")
	default:
		d.say("encryption", Warning, fmt.Sprintf("LANGGRAPH_AES_KEY has %d keys: the key is being changed", len(cfg.Keys)), "run understudy encrypt --rotate, and remove the old keys")
	}
	if len(cfg.Keys) > 0 && cfg.History.JSONL != "" {
		d.say("encryption", Warning, "the files of history.jsonl are plain text", "remove history.jsonl, or encrypt its disk")
	}
}
