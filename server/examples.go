package server

import (
	_ "embed"
	"encoding/json"
	"sync"
)

//go:embed examples.json
var recorded []byte

// example is an exchange of an operation, as it was recorded.
type example struct {
	Request  json.RawMessage `json:"request,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
}

// examples are by method and path, such as "post /threads". A test makes them from the recordings of the wire.
var examples = sync.OnceValue(func() map[string]example {
	var all map[string]example
	if err := json.Unmarshal(recorded, &all); err != nil {
		panic("server/examples.json: " + err.Error())
	}
	return all
})
