package config

import (
	"encoding/json"
	"slices"
	"time"
)

// ThreadTTL is checkpointer.ttl: retention of unused threads.
type ThreadTTL struct {
	Strategy string         // delete or keep_latest
	Default  *time.Duration // for threads without a ttl of their own; nil keeps them
	Every    time.Duration  // between sweeps; 0 for the default
	Limit    int            // threads per sweep; 0 for the default
}

// ItemTTL is store.ttl: retention of store items.
type ItemTTL struct {
	Default time.Duration // for items without a ttl of their own; 0 keeps them
	Unread  bool          // reading does not extend the expiry
	Every   time.Duration // between sweeps; 0 for the default
}

// strategies say what happens to a thread whose time is up.
var strategies = []string{"delete", "keep_latest"}

func (f *file) threadTTL(v value, key string) {
	t := ThreadTTL{Strategy: "delete"}
	f.section(v, key, map[string]func(value, string){
		"strategy": func(v value, key string) {
			if t.Strategy = f.text(v, key, "delete"); t.Strategy != "" && !slices.Contains(strategies, t.Strategy) {
				f.wrong(v, key, "%q is none of %s", t.Strategy, list(strategies))
			}
		},
		"default_ttl": func(v value, key string) {
			after := f.minutes(v, key, 0)
			t.Default = &after
		},
		"sweep_interval_minutes": func(v value, key string) { t.Every = f.minutes(v, key, shortestSweep) },
		"sweep_limit":            func(v value, key string) { t.Limit = int(f.integer(v, key, 1, 1_000_000)) },
	})
	f.c.ThreadTTL = t
}

func (f *file) itemTTL(v value, key string) {
	var t ItemTTL
	refresh := true
	f.section(v, key, map[string]func(value, string){
		"refresh_on_read":        f.setBool(&refresh),
		"default_ttl":            func(v value, key string) { t.Default = f.minutes(v, key, 0) },
		"sweep_interval_minutes": func(v value, key string) { t.Every = f.minutes(v, key, shortestSweep) },
	})
	t.Unread = !refresh
	f.c.ItemTTL = t
}

// shortestSweep keeps sweeps from being all that a server does, longestTTL times from overflowing.
const (
	shortestSweep = time.Second
	longestTTL    = 100 * 365 * 24 * time.Hour
)

// minutes reads a number of minutes, fractions too.
func (r *reader) minutes(v value, key string, least time.Duration) time.Duration {
	n, isNumber := v.data.(json.Number)
	minutes, err := n.Float64()
	if !isNumber || err != nil || minutes <= 0 || minutes < least.Minutes() {
		r.wrong(v, key, "write a number of minutes above 0, such as 60")
		return least
	}
	if minutes >= longestTTL.Minutes() {
		return longestTTL
	}
	return time.Duration(minutes * float64(time.Minute))
}
