package transfer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
)

func sumsOf(t *testing.T, edit func(*Step)) *sums {
	t.Helper()
	p := &Step{Writes: []checkpointer.Write{{TaskID: "t", Index: 1, Channel: "c", Type: "msgpack", Data: []byte{1}}}}
	p.ID = "1"
	p.Data = []byte(`{"v": 4, "id": "1", "channel_values": {"a": 1.0, "n": null}, "channel_versions": {"a": "1", "b": "2", "n": "3"}}`)
	p.Metadata = []byte(`{"step": 1}`)
	p.Blobs = []checkpointer.Blob{{Channel: "b", Version: "2", Type: "msgpack", Data: []byte{0x91, 1}}}
	if edit != nil {
		edit(p)
	}
	s := newSums()
	require.NoError(t, s.add(p))
	return s
}

func TestSumsAreEqualWhateverTheForm(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Step){
		"another order": func(p *Step) {
			p.Data = []byte(`{"id":"1","channel_versions":{"n":"3","b":"2","a":"1"},"channel_values":{"n":null,"a":1},"v":4}`)
		},
		"a null as a row":    func(p *Step) { p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: "n", Version: "3", Type: "null"}) },
		"an empty row":       func(p *Step) { p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: "z", Version: "9", Type: "empty"}) },
		"JSON for msgpack":   func(p *Step) { p.Blobs[0].Type, p.Blobs[0].Data = "json", []byte("[1]") },
		"items for one list": func(p *Step) { p.Blobs[0].Data, p.Blobs[0].Items = nil, [][]byte{{1}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.NoError(t, sumsOf(t, nil).compare(sumsOf(t, edit)))
			assert.Equal(t, sumsOf(t, nil).total(), sumsOf(t, edit).total())
		})
	}
}

// Of a source that derives the runs of its checkpoints the run does not count, and everything else does.
func TestSumsWithoutRuns(t *testing.T) {
	t.Parallel()
	with := func(metadata string) *sums {
		s := newSums()
		s.withoutRun = true
		p := &Step{}
		p.ID, p.Data, p.Metadata = "1", []byte(`{"v": 4, "id": "1"}`), []byte(metadata)
		require.NoError(t, s.add(p))
		return s
	}
	require.NoError(t, with(`{"step":1}`).compare(with(`{"step":1,"run_id":"r"}`)))
	require.NoError(t, with(`{"step":1,"run_id":"q"}`).compare(with(`{"step":1}`)))
	require.ErrorContains(t, with(`{"step":1,"run_id":"r"}`).compare(with(`{"step":2,"run_id":"r"}`)), "checkpoint 1 differs")
}

func TestSumsTellWhatDiffers(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*Step){
		"checkpoint 1 differs":                           func(p *Step) { p.Metadata = []byte(`{"step":2}`) },
		"the value of channel b at version 2 differs":    func(p *Step) { p.Blobs[0].Data = []byte{0x91, 2} },
		"the value of channel b at version 2 is missing": func(p *Step) { p.Blobs = nil },
		"the value of channel a at version 1 differs": func(p *Step) {
			p.Data = []byte(`{"v":4,"id":"1","channel_values":{"a":2,"n":null},"channel_versions":{"a":"1","b":"2","n":"3"}}`)
		},
		"write 1 of task t on checkpoint 1 is missing":             func(p *Step) { p.Writes = nil },
		"write 1 of task t on checkpoint 1 differs":                func(p *Step) { p.Writes[0].Channel = "d" },
		"checkpoint 1 is missing; write 1 of task t on checkpoint": func(p *Step) { p.ID = "2" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			assert.ErrorContains(t, sumsOf(t, nil).compare(sumsOf(t, edit)), want)
			assert.NotEqual(t, sumsOf(t, nil).total(), sumsOf(t, edit).total())
		})
	}
}
