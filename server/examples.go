package server

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"sync"

	"understudy/internal/jsonobj"
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

// recordedGraph is the graph that requests of examples.json name, with an input of messages, which most graphs accept.
const recordedGraph = "chat"

// exampleBody returns the example of an operation's body, with the name of a graph that this server has; empty: there is none.
func (s *Server) exampleBody(operation string) []byte {
	body := []byte(examples()[operation].Request)
	graph := ""
	if s.opts.ExampleGraph != nil {
		graph = s.opts.ExampleGraph()
	}
	if graph == "" {
		return body
	}
	for _, key := range []string{`"assistant_id":`, `"graph_id":`, `"assistant_id": `, `"graph_id": `} { // as in the recordings, and as -update writes them
		body = bytes.ReplaceAll(body, []byte(key+`"`+recordedGraph+`"`), jsonobj.AppendText([]byte(key), graph))
	}
	return body
}
