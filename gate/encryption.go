package gate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"understudy/access"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Errors of handlers of encryption.path. The client sees their text.
var errNotEncrypted = fault.New(fault.Unavailable, "Encryption is not available at the moment, try again")

const encryptionFailed = "encryption failed"

// Encryption is a gate for encryption.path alone: it must work before the database is opened, and what routes and handlers of auth do does not hold it up. It
// implements encryption.Handlers. Its methods are safe for concurrent use.
type Encryption struct{ alone }

var _ encryption.Handlers = (*Encryption)(nil)

// encryptionHandlers says what handlers there are in addition to those that encrypt keys.
type encryptionHandlers struct {
	JSON    bool `json:"json"`    // that say which names of metadata are readable
	Context bool `json:"context"` // that make the context of a request
}

// StartEncryption starts the process with the handlers and waits until they are loaded. The error is a *StartError when they cannot be. Call Close after use.
func StartEncryption(ctx context.Context, o Options) (*Encryption, error) {
	o.Auth, o.App, o.Embed, o.Tools = "", "", "", nil
	return startEncryption(ctx, New(o))
}

func startEncryption(ctx context.Context, g *Gate) (*Encryption, error) {
	a, err := startAlone(ctx, g)
	if err != nil {
		return nil, err
	}
	return &Encryption{a}, nil
}

// Up returns nil when the process answers, else why not.
func (e *Encryption) Up() error {
	if e.gate.Up() != nil {
		return errNotEncrypted
	}
	return nil
}

// Reload replaces the handlers, as Gate.Reload does.
func (e *Encryption) Reload(ctx context.Context, o Options) error {
	o.Auth, o.App, o.Embed, o.Tools = "", "", "", nil
	return e.gate.Reload(ctx, o)
}

// ask asks the handlers. What they raise is in the log, and not in the error that a client sees.
func (e *Encryption) ask(ctx context.Context, do string, rest func([]byte) []byte) (*answer, error) {
	a, err := e.gate.ask(ctx, do, func(b []byte, _ *process) []byte { return rest(b) })
	switch {
	case errors.Is(err, errSlow):
		return nil, fault.Wrap(fault.Unavailable, errNotEncrypted.Message, e.gate.errHangs(a.awaited))
	case errors.Is(err, errFull), errors.Is(err, errDown):
		return nil, errNotEncrypted
	case err != nil:
		return nil, err
	case a.Refusal != nil:
		e.gate.logRefusal(a.Refusal)
		return nil, fault.Wrap(fault.Internal, encryptionFailed, fmt.Errorf("encryption.path: %s", firstLine(a.Refusal.Log)))
	}
	return a, nil
}

func appendContext(b []byte, c encryption.Context) []byte {
	return append(append(b, `"context":`...), c.Object()...)
}

func appendKey(b, key []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, `,"key":"`...), key), '"')
}

// Wrap implements encryption.Handlers.
func (e *Encryption) Wrap(ctx context.Context, of encryption.Context, key []byte) ([]byte, error) {
	a, err := e.ask(ctx, "wrap", func(b []byte) []byte { return appendKey(appendContext(append(b, ','), of), key) })
	if err != nil {
		return nil, err
	}
	return a.Key, nil
}

// Unwrap implements encryption.Handlers. All keys are one question, and handlers decrypt them at once. Of several, one that takes too long has an error of its own.
func (e *Encryption) Unwrap(ctx context.Context, list []encryption.Wrapped) ([]encryption.Unwrapped, error) {
	a, err := e.ask(ctx, "unwrap", func(b []byte) []byte {
		b = append(b, `,"keys":[`...)
		for i, w := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendKey(appendContext(append(b, '{'), w.Context), w.Key), '}')
		}
		b = append(b, ']')
		if len(list) > 1 {
			b = strconv.AppendFloat(append(b, `,"seconds":`...), (e.gate.opts.Timeout * 3 / 4).Seconds(), 'f', 3, 64)
		}
		return b
	})
	if err != nil {
		return nil, err
	}
	out := make([]encryption.Unwrapped, len(a.Keys))
	for i, k := range a.Keys {
		out[i] = encryption.Unwrapped{Key: k.Key, Replacement: k.Replacement}
		if k.Error != "" {
			out[i].Err = fault.Wrap(fault.Internal, encryptionFailed, fmt.Errorf("encryption.path: %s", firstLine(k.Error)))
		}
	}
	return out, nil
}

// Readable implements encryption.Handlers.
func (e *Encryption) Readable(ctx context.Context, of encryption.Context, names []string) ([]bool, error) {
	a, err := e.ask(ctx, "readable", func(b []byte) []byte {
		b = append(appendContext(append(b, ','), of), `,"names":[`...)
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonobj.AppendText(b, name)
		}
		return append(b, ']')
	})
	if err != nil {
		return nil, err
	}
	return a.Readable, nil
}

// Context returns the context of a request: what its header says, or what the handler of @encryption.context makes of it for the actor, who may be nil.
func (e *Encryption) Context(ctx context.Context, said encryption.Context, actor *access.Actor) (encryption.Context, error) {
	if !e.gate.hasContext() {
		return said, nil
	}
	a, err := e.ask(ctx, "encryption_context", func(b []byte) []byte {
		if b = appendContext(append(b, ','), said); actor != nil {
			b = appendActor(append(b, `,"actor":`...), actor)
		}
		return b
	})
	if err != nil {
		return "", err
	}
	c, err := encryption.Parse(a.Context)
	if err != nil {
		return "", fault.Wrap(fault.Internal, encryptionFailed, fmt.Errorf("the result of @encryption.context: %w", err))
	}
	return c, nil
}

// hasContext reports whether requests have to be asked about. While no process is there, they are: asking fails then.
func (g *Gate) hasContext() bool {
	p := g.serving()
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello == nil || p.hello.Encryption == nil || p.hello.Encryption.Context
}

// keyForm is a decrypted data key.
type keyForm struct {
	Key         []byte `json:"key"`
	Replacement []byte `json:"replacement"`
	Error       string `json:"error"`
}

// encryptionAnswer is the part of an answer that handlers of encryption give.
type encryptionAnswer struct {
	Key      []byte          `json:"key"`
	Keys     []keyForm       `json:"keys"`
	Readable []bool          `json:"readable"`
	Context  json.RawMessage `json:"context"`
}
