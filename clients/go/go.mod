// A server for tests of Go programs, without dependencies.
module reeve/clients/go

go 1.24.0
