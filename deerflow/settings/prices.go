package settings

import (
	"fmt"
	"strconv"
	"strings"
)

// Price is what a model costs, per million tokens.
type Price struct{ Input, Output float64 }

// Prices are those of the models, in one currency.
type Prices struct {
	Currency string // "": costs are not shown
	of       map[string]Price
}

// PricesOf reads models[].pricing: {currency, input_per_million, output_per_million}. Prices in several currencies cannot be added up, and are none.
func PricesOf(models []Model) Prices {
	p := Prices{of: map[string]Price{}}
	for _, m := range models {
		raw, ok := m.Pricing.(map[string]any)
		if !ok {
			continue
		}
		in, err1 := amount(raw["input_per_million"])
		out, err2 := amount(raw["output_per_million"])
		if err1 != nil || err2 != nil || in <= 0 && out <= 0 {
			continue
		}
		currency := "USD"
		if c, ok := raw["currency"].(string); ok && strings.TrimSpace(c) != "" {
			currency = strings.ToUpper(strings.TrimSpace(c))
		}
		if p.Currency != "" && p.Currency != currency {
			return Prices{}
		}
		p.Currency = currency
		for _, name := range []string{strings.ToLower(m.Name), strings.ToLower(m.Model)} {
			if _, have := p.of[name]; !have && name != "" {
				p.of[name] = Price{in, out}
			}
		}
	}
	return p
}

// Cost returns what tokens of a model cost; false for one without a price.
func (p Prices) Cost(model string, input, output int64) (float64, bool) {
	price, ok := p.of[strings.ToLower(model)]
	if !ok || input == 0 && output == 0 {
		return 0, false
	}
	return (float64(input)*price.Input + float64(output)*price.Output) / 1e6, true
}

// amount reads a number, or a text that is one. Nothing is zero.
func amount(v any) (float64, error) {
	if v == nil {
		return 0, nil
	}
	return strconv.ParseFloat(strings.TrimSpace(fmt.Sprint(v)), 64)
}
