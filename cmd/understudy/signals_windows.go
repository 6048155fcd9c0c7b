package main

import "os"

// reopenSignals: Windows has none.
var reopenSignals []os.Signal
