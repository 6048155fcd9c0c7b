package transfer

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"understudy/id"
)

func TestParentsFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want []id.Checkpoint }{
		"nothing":            {nil, []id.Checkpoint{}},
		"in order":           {[]id.Checkpoint{"1<", "2<1", "3<2"}, []id.Checkpoint{"1", "2", "3"}},
		"backwards":          {[]id.Checkpoint{"1<2", "2<3", "3<"}, []id.Checkpoint{"3", "2", "1"}},
		"a fork":             {[]id.Checkpoint{"1<", "2<1", "3<1", "4<3"}, []id.Checkpoint{"1", "2", "3", "4"}},
		"a parent that went": {[]id.Checkpoint{"2<1", "3<2"}, []id.Checkpoint{"2", "3"}},
		"a loop":             {[]id.Checkpoint{"1<2", "2<1"}, []id.Checkpoint{"2", "1"}},
		"its own":            {[]id.Checkpoint{"1<1"}, []id.Checkpoint{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var links []Link
			for _, s := range c.in {
				links = append(links, Link{ID: s[:1], Parent: s[2:]})
			}
			got := []id.Checkpoint{}
			for _, l := range parentsFirst(links) {
				got = append(got, l.ID)
			}
			assert.Equal(t, c.want, got)
		})
	}
	same := parentsFirst([]Link{{NS: "a", ID: "1", Parent: "2"}, {NS: "b", ID: "2"}})
	assert.Equal(t, id.Checkpoint("1"), same[0].ID, "namespaces have trees of their own")
}
