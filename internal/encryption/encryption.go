// Package encryption says in which context content is encrypted, and what encrypts the keys of it: handlers of the deployment (encryption.path).
//
// A Context travels in the context of a request, and later in the configuration of the run or cron that the request created. Storage encrypts with a data
// key for each Context, which it keeps as Handlers have encrypted it. docs/encryption.md explains it to users.
package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// Context is a JSON object with sorted keys, such as {"tenant":"a"}; "" is the empty one. Handlers see it as ctx.metadata.
type Context string

const (
	// Header is the request header with a Context: base64 of a JSON object.
	Header = "X-Encryption-Context"
	// Key is the member of a run's configurable that has the Context of the request that created it.
	Key = "__encryption_context__"
	// maxContext bounds the bytes of a Context, which is stored with its data key, and maxDepth how deep it is nested: handlers get it as objects of Python, which go
	// down about a thousand levels.
	maxContext = 4 << 10
	maxDepth   = 100
)

type contextKey struct{}

// With returns a context in which content is encrypted for c.
func With(ctx context.Context, c Context) context.Context {
	if Of(ctx) == c {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, c)
}

// Of returns what With set; "" without.
func Of(ctx context.Context) Context {
	c, _ := ctx.Value(contextKey{}).(Context)
	return c
}

// Object returns the JSON object.
func (c Context) Object() json.RawMessage {
	if c == "" {
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(c)
}

// ParseHeader reads the value of Header; "" is the empty Context. The error is a fault of kind Unprocessable.
func ParseHeader(value string) (Context, error) {
	if value == "" {
		return "", nil
	}
	if base64.StdEncoding.DecodedLen(len(value)) > maxContext+3 {
		return "", refuse(errTooLong)
	}
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		if text, err = base64.URLEncoding.DecodeString(value); err != nil {
			return "", refuse(errors.New("not base64"))
		}
	}
	c, err := Parse(text)
	if err != nil {
		return "", refuse(err)
	}
	return c, nil
}

func refuse(err error) error {
	return fault.Newf(fault.Unprocessable, "Invalid %s header: %w", Header, err)
}

var (
	// errNoObject has the words of LangGraph Server.
	errNoObject = errors.New("expected base64-encoded JSON object")
	errTooLong  = fmt.Errorf("longer than %d bytes", maxContext)
)

// Parse returns the Context of a JSON object that a client or a handler gives. Parsing its Object gives the same Context again.
func Parse(object []byte) (Context, error) {
	if len(object) > maxContext {
		return "", errTooLong
	}
	if jsonscan.DeeperThan(object, maxDepth) {
		return "", fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	c, err := Restore(object)
	if err == nil && len(c) > maxContext { // what is no UTF-8 became longer
		return "", errTooLong
	}
	return c, err
}

// Restore is Parse for what is stored: that must stay readable whatever the bounds of Parse are.
func Restore(object []byte) (Context, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("not JSON: more than one value")
	}
	members, ok := v.(map[string]any)
	if !ok {
		return "", errNoObject
	}
	if len(members) == 0 {
		return "", nil
	}
	var text strings.Builder
	e := json.NewEncoder(&text) // sorts the keys
	e.SetEscapeHTML(false)
	if err := e.Encode(members); err != nil {
		return "", err
	}
	return Context(strings.TrimSuffix(text.String(), "\n")), nil
}

// Write writes c into the configurable of a run, and removes what a client wrote there.
func Write(configurable *jsonobj.Object, c Context) {
	if c == "" {
		configurable.Delete(Key)
		return
	}
	configurable.Set(Key, c.Object())
}

// OfRun returns the Context in the configuration of a run or cron (a RunnableConfig); "" when there is none.
func OfRun(config json.RawMessage) Context {
	if !bytes.Contains(config, []byte(Key)) {
		return ""
	}
	c, err := Restore(jsonobj.Of(jsonobj.Of(config).Get("configurable")).Get(Key))
	if err != nil {
		return ""
	}
	return c
}

// Hide returns the configuration of a run, or an object that has it at a path, without its Context, for clients.
func Hide(object json.RawMessage, path ...string) json.RawMessage {
	if !bytes.Contains(object, []byte(Key)) {
		return object
	}
	return without(object, append(path, "configurable"))
}

func without(object json.RawMessage, path []string) json.RawMessage {
	o, err := jsonobj.Parse(object)
	switch {
	case err != nil:
		return object
	case len(path) == 0:
		o.Delete(Key)
	case o.Get(path[0]) != nil:
		o.Set(path[0], without(o.Get(path[0]), path[1:]))
	}
	return o.JSON()
}

// Wrapped is a data key as handlers encrypted it, and the Context that it is for.
type Wrapped struct {
	Context Context
	Key     []byte
}

// Unwrapped is what became of a Wrapped: its data key, or an error. Replacement is not nil when handlers want to have it stored in place of Wrapped.Key.
type Unwrapped struct {
	Key, Replacement []byte
	Err              error
}

// Handlers encrypt data keys. They are safe for concurrent use. Errors are faults: Unavailable when the handlers do not answer, else Internal.
type Handlers interface {
	// Wrap encrypts a data key.
	Wrap(ctx context.Context, of Context, key []byte) ([]byte, error)
	// Unwrap decrypts data keys; the result has the same order. The error says that none was decrypted.
	Unwrap(ctx context.Context, list []Wrapped) ([]Unwrapped, error)
	// Readable reports which names of threads' metadata the handlers leave readable.
	Readable(ctx context.Context, of Context, names []string) ([]bool, error)
	// Close ends the handlers.
	Close() error
}

// Configured says what a configuration encrypts with.
type Configured struct {
	Keys     [][]byte // of LANGGRAPH_AES_KEY, the current one first
	Handlers bool     // handlers of encryption.path encrypt the keys of the content
}
