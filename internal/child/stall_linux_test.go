package child

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that gets little processor time may compute all the same: that it is starved is believed when it is found twice, and then looked at again.
func TestProberLooksAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ticks []uint64 // at each look
		want  []Why
	}{
		"busy":                     {[]uint64{0, 20}, []Why{Busy}},
		"busy, and seldom at work": {[]uint64{0, 2, 2, 20}, []Why{Busy}},
		"starved for a while":      {[]uint64{0, 2, 2, 3, 3, 30}, []Why{Starved, Busy}},
		"starved":                  {[]uint64{0}, []Why{Starved}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			looks := 0
			p := Prober{times: func(int) (map[int]uint64, byte, bool) {
				ticks := tt.ticks[min(looks, len(tt.ticks)-1)]
				looks++
				return map[int]uint64{1: ticks}, 'R', true
			}}
			for range 2 {
				var found []Why
				looks = 0
				for mute := time.Duration(0); mute < 10*time.Second; mute += 500 * time.Millisecond {
					if s := p.Step(1<<30, mute, 2*time.Second, 500*time.Millisecond); s != nil { // there is no such process
						found = append(found, s.Why())
					}
				}
				require.Equal(t, tt.want, found)
			}
		})
	}
}
