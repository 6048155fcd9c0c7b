package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/joho/godotenv"
)

// unterminated begins the parser's error for a quote without an end; the value follows.
const unterminated = "unterminated quoted value "

// maxEnvMistakes is how many mistakes of a dotenv file are reported.
const maxEnvMistakes = 20

// parseEnv reads the lines of a dotenv file. Its mistakes have the lines, and nothing of what stands there: that may be a key.
func parseEnv(text []byte) (map[string]string, Mistakes) {
	vars, mistakes := readEnv(text)
	if mistakes != nil {
		return nil, mistakes
	}
	return vars, nil
}

// readEnv is parseEnv which also returns what it could read.
func readEnv(text []byte) (map[string]string, Mistakes) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if zero := bytes.IndexByte(text, 0); zero >= 0 {
		return nil, Mistakes{{Text: "is UTF-16, as > of PowerShell writes it; save the file as UTF-8"}}
	}
	if !utf8.Valid(text) {
		return nil, Mistakes{*at(text, firstInvalid(text), "is not UTF-8 here; save the file as UTF-8")}
	}
	text = append(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), '\n')
	var mistakes Mistakes
	for {
		vars, err := parseDotenv(text)
		if err == nil {
			return vars, mistakes
		}
		m, at := envMistake(text, err)
		mistakes = append(mistakes, m)
		end := at + bytes.IndexByte(text[at:], '\n')
		if m.Text == openQuote || end < at || len(mistakes) == maxEnvMistakes { // what follows an open quote is part of the value
			return nil, mistakes
		}
		text = append(append([]byte{}, text[:at]...), text[end:]...) // without the line, whose end stays
	}
}

func parseDotenv(text []byte) (map[string]string, error) {
	vars, err := godotenv.UnmarshalBytes(text)
	if _, nameless := vars[""]; nameless && err == nil {
		err = errors.New("no name")
	}
	return vars, err
}

const openQuote = "the quote of its value has no end"

// envMistake is the first mistake of a text, and where its line begins.
func envMistake(text []byte, err error) (Mistake, int) {
	line, at := stuck(text, parseDotenv)
	rest := bytes.TrimLeft(text[at:], "\n")
	line += len(text[at:]) - len(rest)
	if _, own := parseDotenv(rest[:bytes.IndexByte(rest, '\n')+1]); own != nil { // what follows may have another mistake
		err = own
	}
	why := "write NAME=value"
	switch message := err.Error(); {
	case strings.HasPrefix(message, unterminated):
		why = openQuote
	case strings.HasPrefix(message, "unexpected character"):
		var char string
		if _, err := fmt.Sscanf(message, "unexpected character %q", &char); err == nil && char != "\n" {
			why = fmt.Sprintf("%q cannot be part of a name; %s", char, why)
		}
	}
	return Mistake{Line: line, Text: why}, len(text) - len(rest)
}

// stuck returns where that begins which the parser cannot read, and its line. The parser does not say where it is, so it gets the text statement by
// statement. A text of which it reads everything has no such place.
func stuck(text []byte, parse func([]byte) (map[string]string, error)) (line, at int) {
	end := 0
	for end < len(text) {
		end += bytes.IndexByte(text[end:], '\n') + 1
		_, err := parse(text[at:end])
		if err == nil {
			at = end
			continue
		}
		value, open := strings.CutPrefix(err.Error(), unterminated)
		if !open || value == "" {
			break
		}
		// The value continues up to its quote, if that comes.
		for ; end < len(text); end++ {
			if text[end] == value[0] && text[end-1] != '\\' {
				break
			}
		}
	}
	return 1 + bytes.Count(text[:at], []byte("\n")), at
}
