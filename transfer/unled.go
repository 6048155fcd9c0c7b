package transfer

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
)

// RowSource is a TranscriptSource whose transcripts are stored apart from its checkpoints, so that they may have messages to which no checkpoint leads: of runs that
// saved nothing, and of threads whose checkpoints are lost. These are left out, as they are in no state, and counted.
type RowSource interface {
	TranscriptSource
	HasRows()
}

// unled are messages of transcripts that are left out.
type unled struct {
	messages, threads int
	first             string // thread
}

func (u *unled) notes() []string {
	if u.messages == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d messages of %d threads are left out, as no checkpoint leads to them; the first of these threads is %s", u.messages, u.threads, u.first)}
}

// answers names a result of a tool by the call that it answers; "" for other messages.
func answers(message []byte) string {
	if call := gjson.GetBytes(message, "tool_call_id").String(); call != "" {
		return "call " + call
	}
	return ""
}

// countUnled counts the messages of a transcript that did not arrive with the checkpoints of a thread.
func (m *Importer) countUnled(ctx context.Context, j *job, src RowSource, t *Thread, to id.Thread) error {
	transcript, err := src.Transcript(ctx, t)
	if err != nil || len(transcript) == 0 {
		return err
	}
	log, err := m.Target.Log(ctx, to)
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for e, err := range log.Events {
		if err != nil {
			return err
		}
		if e.Category == eventstore.CategoryMessage {
			here[e.MessageID] = true
			here[answers(e.Content)] = true
		}
	}
	delete(here, "") // messages without a name are none that can be found
	left := 0
	for _, text := range transcript {
		name := gjson.GetBytes(text, "id").String()
		if name == "" { // as DeerFlow writes some results of tools
			name = answers(text)
		}
		if !here[name] {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	if j.unled.threads == 0 {
		j.unled.first = t.Key
	}
	j.unled.messages, j.unled.threads = j.unled.messages+left, j.unled.threads+1
	return nil
}
