package doctor

import (
	"fmt"

	"understudy/internal/config"
	"understudy/internal/encryption"
)

// configured returns what a configuration encrypts with.
func configured(cfg *config.Config) encryption.Configured {
	return encryption.Configured{Keys: cfg.Storage.Keys, Handlers: cfg.Encrypts()}
}

// locked reports that a server would not start, because the database is encrypted otherwise than the configuration says.
func (d *doctor) locked(cfg *config.Config, why error) {
	d.refused = why != nil
	switch {
	case why == nil:
	case cfg.Server.IgnoreAuth && cfg.Encryption.IsSet():
		d.say("encryption", Problem, why.Error(), "leave out --ignore-auth, which ignores encryption.path too")
	default:
		d.say("encryption", Problem, why.Error(), "")
	}
}

// encryption reports whether what is written is encrypted. Whether the database fits is found with it.
func (d *doctor) encryption(cfg *config.Config) {
	switch {
	case d.refused:
	case !cfg.Encrypts() && len(cfg.Storage.Keys) == 0:
	case d.begins:
		d.say("encryption", Warning, "the database is not encrypted: the next start begins to encrypt what it writes, and from then on the database opens only with this encryption",
			"to encrypt what is there too, run understudy encrypt while no server runs; else start without LANGGRAPH_AES_KEY and encryption.path")
	case cfg.Encrypts():
		d.say("encryption", Fine, "what is written is encrypted by the handlers of encryption.path, which the server loads at its start", "")
	case len(cfg.Storage.Keys) == 1:
		d.say("encryption", Fine, "what is written is encrypted with the key in LANGGRAPH_AES_KEY", "")
	default:
		d.say("encryption", Warning, fmt.Sprintf("LANGGRAPH_AES_KEY has %d keys: the key is being changed", len(cfg.Storage.Keys)), "run understudy encrypt --rotate, and remove the old keys")
	}
	if (len(cfg.Storage.Keys) > 0 || cfg.Encrypts()) && cfg.History.JSONL != "" {
		d.say("encryption", Warning, "the files of history.jsonl are plain text", "remove history.jsonl, or encrypt its disk")
	}
}
