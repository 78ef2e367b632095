module seatrial.example/clients

go 1.19
