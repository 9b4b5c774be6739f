"""Counts the customers in a day's orders: the program of docs/tutorial.md."""

import random


def orders(count):
    numbers = random.Random(7)
    for _ in range(count):
        yield f"customer-{numbers.randrange(4000)}", numbers.randrange(1, 500)


class Report:
    def __init__(self):
        self.customers = []
        self.total = 0

    def add(self, customer, amount):
        if customer not in self.customers:
            self.customers.append(customer)
        self.total += amount


def main():
    report = Report()
    for customer, amount in orders(50_000):
        report.add(customer, amount)
    print(f"{len(report.customers)} customers, {report.total} in all")


main()
