package usage

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// pastFor is how long sums of past days are kept in memory: `understudy rebuild` may change them in the database. Those of everyone are read again before.
	pastFor = 2 * tidyEvery
	// pastMost is of how many identities they are kept, and pastSums how many of each: a sum is about 200 bytes.
	pastMost = 16
	pastSums = 100_000
)

// past keeps in memory the sums of days on which no run ends any more, because reading a year of them takes a database of one process half a second. A day is
// past two days after it, for servers whose clocks differ. What is added later, after a follower was down for so long, shows when they are read again. The zero value is
// ready.
type past struct {
	mu sync.Mutex
	by map[string]*pastDays // by identity
}

type pastDays struct {
	days  map[int64][]Sum
	sums  int
	until time.Time // then they are read again
}

// of returns the days that are known from the first one on, and the first that is not.
func (p *past) of(identity string, since, until int64, now time.Time) (days map[int64][]Sum, from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	days, from = map[int64][]Sum{}, since
	known := p.by[identity]
	if known == nil || !now.Before(known.until) {
		return days, from
	}
	for ; from <= until; from++ {
		sums, ok := known.days[from]
		if !ok {
			break
		}
		days[from] = sums
	}
	return days, from
}

// keep keeps those of some days that are past.
func (p *past) keep(identity string, from, until int64, read map[int64][]Sum, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.by[identity]
	if known == nil || !now.Before(known.until) {
		known = &pastDays{days: map[int64][]Sum{}, until: now.Add(pastFor)}
	}
	for day := from; day <= until && day < DayOf(now)-1; day++ {
		sums := together(read[day])
		if known.sums += len(sums) - len(known.days[day]); known.sums > pastSums {
			known.sums -= len(sums) - len(known.days[day])
			break // the days from here on are read each time
		}
		known.days[day] = sums
	}
	if len(known.days) == 0 {
		return
	}
	if p.by == nil {
		p.by = map[string]*pastDays{}
	}
	if p.by[identity] = known; len(p.by) > pastMost {
		delete(p.by, slices.MinFunc(slices.Collect(maps.Keys(p.by)), func(a, b string) int { return p.by[a].until.Compare(p.by[b].until) }))
	}
}

func (p *past) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by = nil
}

func (p *past) forget(identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, identity)
}

// together adds up the parts of sums.
func together(parts []Sum) []Sum {
	adder := Adder{}
	for _, s := range parts {
		adder.addTo(Place{}, s)
	}
	return adder.Sums()[Place{}]
}
