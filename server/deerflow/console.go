package deerflow

import (
	"encoding/json"
	"math"
	"time"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/run"
)

// ConsoleStats are what a user has, and has done.
type ConsoleStats struct {
	Runs     int      `json:"total_runs"`
	Active   int      `json:"active_runs"`
	Failed   int      `json:"failed_runs"`
	Threads  int      `json:"total_threads"`
	Agents   int      `json:"total_agents"`
	Tokens   int64    `json:"total_tokens"`
	Cost     *float64 `json:"total_cost"` // nil: no model has a price
	Currency *string  `json:"currency"`
}

// Add counts a run; done is nil while nothing is known of it.
func (s *ConsoleStats) Add(x *run.Run, done *run.Completion, prices settings.Prices) {
	s.Runs++
	switch x.Status {
	case run.Pending, run.Running:
		s.Active++
	case run.Error, run.Timeout:
		s.Failed++
	}
	if done != nil {
		s.Tokens += number(done.TotalTokens)
	}
	if cost := costOf(x, done, prices); cost != nil && s.Cost != nil {
		*s.Cost = rounded(*s.Cost + *cost)
	}
}

// NewConsoleStats begins to count.
func NewConsoleStats(prices settings.Prices) *ConsoleStats {
	s := &ConsoleStats{}
	s.Cost, s.Currency = total(prices)
	return s
}

// total is a sum of costs that nothing was added to; nil without prices.
func total(prices settings.Prices) (cost *float64, currency *string) {
	if prices.Currency == "" {
		return nil, nil
	}
	return new(float64), &prices.Currency
}

func rounded(cost float64) float64 { return math.Round(cost*1e6) / 1e6 }

// ModelOf is the model that a run asked for; "": the first one.
func ModelOf(x *run.Run) string { return gjson.GetBytes(x.Kwargs.Context, "model_name").String() }

// costOf is what a run cost; nil when none of its models has a price.
func costOf(x *run.Run, done *run.Completion, prices settings.Prices) *float64 {
	if done == nil {
		return nil
	}
	sum, priced := 0.0, false
	for name, u := range done.ByModel {
		if cost, ok := prices.Cost(name, number(u.Input), number(u.Output)); ok {
			sum, priced = sum+cost, true
		}
	}
	if !priced {
		sum, priced = prices.Cost(ModelOf(x), number(done.InputTokens), number(done.OutputTokens))
	}
	if !priced {
		return nil
	}
	sum = rounded(sum)
	return &sum
}

const maxExcerpt = 300 // characters of an error in a list

// ConsoleRun is a run in the list of all threads. title is that of its thread; "" none.
func ConsoleRun(x *run.Run, done *run.Completion, title string, prices settings.Prices, now time.Time) json.RawMessage {
	type row struct {
		Run       string   `json:"run_id"`
		Thread    string   `json:"thread_id"`
		Title     *string  `json:"thread_title"`
		Assistant string   `json:"assistant_id"`
		Status    string   `json:"status"`
		Model     *string  `json:"model_name"`
		CreatedAt string   `json:"created_at"`
		UpdatedAt string   `json:"updated_at"`
		Seconds   float64  `json:"duration_seconds"`
		Tokens    int64    `json:"total_tokens"`
		Messages  int64    `json:"message_count"`
		Cost      *float64 `json:"cost"`
		Error     *string  `json:"error"`
	}
	until := x.EndedAt
	if !x.Status.Over() {
		until = now
	} else if until.IsZero() {
		until = x.UpdatedAt
	}
	r := row{
		Run: string(x.ID), Thread: string(x.Thread), Title: some(title), Assistant: "lead_agent", Status: string(x.Status), Model: some(ModelOf(x)), CreatedAt: Stamp(x.CreatedAt),
		UpdatedAt: Stamp(x.UpdatedAt), Seconds: max(0, until.Sub(x.CreatedAt).Seconds()), Cost: costOf(x, done, prices),
	}
	if done != nil {
		r.Tokens, r.Messages = number(done.TotalTokens), number(done.Messages)
	}
	if text := []rune(gjson.GetBytes(x.Error, "message").String()); len(text) > 0 {
		r.Error = some(string(text[:min(len(text), maxExcerpt)]))
	}
	return encode(r)
}

// ConsoleUsage is what a user's runs used, day by day.
type ConsoleUsage struct {
	Days     []ConsoleDay             `json:"days"`
	ByModel  map[string]*consoleModel `json:"by_model"`
	Tokens   int64                    `json:"total_tokens"`
	Runs     int                      `json:"total_runs"`
	Cost     *float64                 `json:"total_cost"`
	Currency *string                  `json:"currency"`

	prices settings.Prices
	zone   *time.Location
	at     map[string]*ConsoleDay
}

// ConsoleDay is one of the days.
type ConsoleDay struct {
	Date   string  `json:"date"`
	Tokens int64   `json:"total_tokens"`
	Input  int64   `json:"input_tokens"`
	Output int64   `json:"output_tokens"`
	Runs   int     `json:"runs"`
	Cost   float64 `json:"cost"`
}

type consoleModel struct {
	Tokens int64    `json:"tokens"`
	Runs   int      `json:"runs"`
	Cost   *float64 `json:"cost"`
	Input  int64    `json:"input_tokens"`
	Cached int64    `json:"cache_read_tokens"`
}

// NewConsoleUsage begins to count the last days, today included, in a zone that is so many minutes ahead of UTC.
func NewConsoleUsage(prices settings.Prices, now time.Time, days, offset int) *ConsoleUsage {
	u := &ConsoleUsage{Days: make([]ConsoleDay, days), ByModel: map[string]*consoleModel{}, prices: prices, zone: time.FixedZone("", offset*60), at: map[string]*ConsoleDay{}}
	u.Cost, u.Currency = total(prices)
	first := now.In(u.zone).AddDate(0, 0, 1-days)
	for i := range u.Days {
		u.Days[i].Date = first.AddDate(0, 0, i).Format(time.DateOnly)
		u.at[u.Days[i].Date] = &u.Days[i]
	}
	return u
}

// Counts reports whether a run began on one of the days.
func (u *ConsoleUsage) Counts(x *run.Run) bool { return u.day(x) != nil }

func (u *ConsoleUsage) day(x *run.Run) *ConsoleDay {
	return u.at[x.CreatedAt.In(u.zone).Format(time.DateOnly)]
}

// Add adds a run that Counts; done is nil while nothing is known of it.
func (u *ConsoleUsage) Add(x *run.Run, done *run.Completion) {
	d := u.day(x)
	d.Runs++
	u.Runs++
	if done == nil {
		return
	}
	d.Tokens += number(done.TotalTokens)
	d.Input += number(done.InputTokens)
	d.Output += number(done.OutputTokens)
	u.Tokens += number(done.TotalTokens)
	if cost := costOf(x, done, u.prices); cost != nil && u.Cost != nil {
		d.Cost, *u.Cost = rounded(d.Cost+*cost), rounded(*u.Cost+*cost)
	}
	for name, used := range done.ByModel {
		if name == "" {
			name = "unknown"
		}
		m := u.ByModel[name]
		if m == nil {
			m = &consoleModel{}
			u.ByModel[name] = m
		}
		m.Runs++
		m.Tokens += number(used.Total)
		m.Input += number(used.Input)
		if cost, ok := u.prices.Cost(name, number(used.Input), number(used.Output)); ok {
			if m.Cost == nil {
				m.Cost = new(float64)
			}
			*m.Cost = rounded(*m.Cost + cost)
		}
	}
}
