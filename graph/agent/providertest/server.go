// Package providertest has fake providers of models. They answer as real ones do, with each of their quirks that is known, and as hostile
// ones could, and they refuse what real ones refuse. Cases lists what an agent does with them; the tests of this package play each case
// through the HTTP API of a server.
package providertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// Secret is in the keys, headers, queries and addresses of all cases. It must not be seen anywhere else.
const Secret = "SECRET-5f2a91c0"

// Reply answers one request.
type Reply func(w http.ResponseWriter, r *http.Request)

// Rule returns why a provider refuses a request; "": it does not.
type Rule func(r *http.Request, body gjson.Result) string

// Server plays the providers of all cases: that of a case is below /<name of the case>.
type Server struct {
	URL   string
	http  *httptest.Server
	cases map[string]*Case

	mu   sync.Mutex
	sent map[string][]gjson.Result
}

// Serve serves cases until Close.
func Serve(cases []*Case) *Server {
	s := &Server{cases: map[string]*Case{}, sent: map[string][]gjson.Result{}}
	for _, c := range cases {
		s.cases[c.Name] = c
	}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	return s
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Sent returns the requests of a case, in the order in which they came.
func (s *Server) Sent(name string) []gjson.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[name]
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	c := s.cases[name]
	if c == nil {
		http.NotFound(w, r)
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	body := gjson.ParseBytes(raw)
	s.mu.Lock()
	n := len(s.sent[name])
	s.sent[name] = append(s.sent[name], body)
	s.mu.Unlock()
	for _, rule := range c.rules() {
		if refusal := rule(r, body); refusal != "" {
			JSON(http.StatusBadRequest, fmt.Sprintf(`{"type":"error","error":{"type":"invalid_request_error","message":%s}}`, quote("refused: "+refusal)))(w, r)
			return
		}
	}
	c.Replies[min(n, len(c.Replies)-1)](w, r)
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// JSON answers with a status and a body.
func JSON(status int, body string, header ...string) Reply {
	return Body(status, "application/json", body, header...)
}

// Body answers with a status and a body of a type.
func Body(status int, kind, body string, header ...string) Reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Soon has the header of a refusal after which a retry may come at once.
var Soon = []string{"Retry-After-Ms", "1"}

// Stream answers with the bytes of a stream of events.
func Stream(body string) Reply { return Body(http.StatusOK, "text/event-stream; charset=utf-8", body) }

// Then sends the bytes of each body, with a pause before each but the first.
func Then(pause time.Duration, bodies ...string) Reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, body := range bodies {
			if i > 0 {
				select {
				case <-time.After(pause):
				case <-r.Context().Done():
					return
				}
			}
			_, _ = io.WriteString(w, body)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// Hang sends a body, and then nothing until the client leaves.
func Hang(body string) Reply {
	return func(w http.ResponseWriter, r *http.Request) {
		if body != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, body)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}
}

// Cut sends a body and cuts the connection.
func Cut(body string) Reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		if body != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, body)
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// Redirect answers with a redirect to an address, whose query has the secret.
func Redirect(status int, to string) Reply {
	return JSON(status, "", "Location", to)
}
