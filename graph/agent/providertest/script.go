package providertest

import (
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/tidwall/gjson"
)

// Script plays a provider that gives its replies in turn, the last one repeatedly, and keeps the requests.
type Script struct {
	Replies []Reply // not empty; not to be changed once requests come

	mu    sync.Mutex
	next  int
	asked []gjson.Result
}

func (s *Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, gjson.ParseBytes(body))
	reply := s.Replies[min(s.next, len(s.Replies)-1)]
	s.next++
	s.mu.Unlock()
	reply(w, r)
}

// Asked returns the requests that came, except those that were taken.
func (s *Script) Asked() []gjson.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Taken returns the requests since its last call.
func (s *Script) Taken() []gjson.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}
