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
	// pastBytes is how much memory they take at most, those of everyone and of identities together. A year of two hundred graphs, assistants and models takes 12 MB.
	pastBytes = 16 << 20
	// pastMost is of how many identities they are kept.
	pastMost = 16
)

// past keeps in memory the sums of days on which no run ends any more, because reading a year of them takes a database of one process half a second. A day is
// past two days after it, for servers whose clocks differ. What is added later, after a follower was down for so long, shows when they are read again. The zero value is
// ready.
type past struct {
	mu    sync.Mutex
	by    map[string]*pastDays // by identity
	bytes int                  // of all
}

type pastDays struct {
	days  map[int64][]Sum
	bytes int
	until time.Time // then they are read again
}

// sizeOf returns about how much memory the sums of a day take, in bytes.
func sizeOf(sums []Sum) int {
	n := 64 + 96*len(sums)
	for i := range sums {
		n += len(sums[i].Name)
	}
	return n
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
		p.drop(identity)
		known = &pastDays{days: map[int64][]Sum{}, until: now.Add(pastFor)}
	}
	for day := from; day <= until && day < DayOf(now)-1; day++ {
		sums := together(read[day])
		more := sizeOf(sums)
		if old, ok := known.days[day]; ok {
			more -= sizeOf(old)
		}
		if !p.fits(identity, more) {
			break // the days from here on are read each time
		}
		known.days[day] = sums
		known.bytes += more
		p.bytes += more
		if p.by == nil {
			p.by = map[string]*pastDays{}
		}
		p.by[identity] = known
	}
}

// fits makes room for more bytes of an identity, and reports whether there is. Days of other identities are dropped for it, those that are read again first. The days of
// everyone stay, because most reports are of them.
func (p *past) fits(identity string, more int) bool {
	for p.bytes+more > pastBytes || (p.by[identity] == nil && len(p.by) >= pastMost) {
		others := slices.DeleteFunc(slices.Collect(maps.Keys(p.by)), func(other string) bool { return other == identity || other == "" })
		if len(others) == 0 {
			return false
		}
		p.drop(slices.MinFunc(others, func(a, b string) int { return p.by[a].until.Compare(p.by[b].until) }))
	}
	return true
}

func (p *past) drop(identity string) {
	if known := p.by[identity]; known != nil {
		p.bytes -= known.bytes
		delete(p.by, identity)
	}
}

func (p *past) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by, p.bytes = nil, 0
}

func (p *past) forget(identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(identity)
}

// together adds up the parts of sums.
func together(parts []Sum) []Sum {
	adder := Adder{}
	for _, s := range parts {
		adder.addTo(Place{}, s)
	}
	return adder.Sums()[Place{}]
}
