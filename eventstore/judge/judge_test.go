package judge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore/judge"
)

type message struct {
	key int64
	id  string
}

func (m *message) Key() int64                  { return m.key }
func (m *message) MessageID() string           { return m.id }
func (m *message) IsSummary() bool             { return false }
func (m *message) IsSystem() bool              { return false }
func (m *message) IsAnonymous() bool           { return false }
func (m *message) IsLost() bool                { return false }
func (m *message) ContentDigest() judge.Digest { return judge.Digest{} }

// A client may delete every condensed message by its id. That is judged in the transaction that saves a checkpoint, so it must not take
// the square of their number: 100,000 of them took half a minute.
func TestManyDeletions(t *testing.T) {
	const n = 100_000
	s := judge.Step[*message]{}
	for i := range n {
		m := &message{int64(i + 1), fmt.Sprintf("0198c2a4-7d3e-7f00-8000-%012d", i)}
		s.Shown, s.Deleted = append(s.Shown, m), append(s.Deleted, m.id)
	}
	began := time.Now()
	v := s.Judge()
	require.Less(t, time.Since(began), 3*time.Second)
	require.Len(t, v.Removed, n)
	require.Empty(t, s.Order(v, nil, nil))
}
